#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/format.hpp"
#include "lora/core/profile.hpp"
#include "lora/io/files/file.hpp"
#include "lora/io/formats/json.hpp"
#include "lora/run/progress.hpp"

namespace lora::run {

/// Totals of a set of spans over all steps.
struct ProfileSum {
  static constexpr std::array<std::string_view, 5> phases = {"forward", "head", "recompute", "backward", "update"};

  double nanoseconds = 0;
  double flops = 0;
  double bytes = 0;
  Index calls = 0;
  std::array<double, phases.size()> of_phase{};  ///< nanoseconds

  void add(const Profile& profile, std::size_t i);
};

namespace detail {

/// The part of the layer that a kernel belongs to; the head, which is in no layer, is a part of its own.
std::string_view part_of(const Profile& profile, std::size_t i);

/// The kind of work that a kernel belongs to.
std::string_view work_of(const Profile& profile, std::size_t i);

}  // namespace detail

/// A profile as Markdown tables: by kind of work, kernel, phase and layer. Milliseconds, calls and megabytes are
/// averages per step.
class ProfileTables {
 public:
  explicit ProfileTables(const Profile& profile);

  std::string text() const;

 private:
  struct Layer {
    ProfileSum phases, kernels;
    std::map<std::string, ProfileSum> works;
  };

  double milliseconds(double nanoseconds) const;
  std::string time(double nanoseconds) const;
  std::string share(double nanoseconds) const;

  template <class Map>
  static auto by_time(const Map& sums) {
    std::vector<const typename Map::value_type*> rows;
    for (const auto& entry : sums) rows.push_back(&entry);
    std::stable_sort(rows.begin(), rows.end(),
                     [](const auto* a, const auto* b) { return a->second.nanoseconds > b->second.nanoseconds; });
    return rows;
  }

  std::string by_work() const;

  std::string by_kernel() const;

  std::string by_phase() const;

  /// Times of the layer's phases and, by kind of work, of its kernels, with the rates of all kernels.
  std::string by_layer() const;

  const Profile& profile_;
  ProfileSum step_, kernels_;
  std::map<std::string, ProfileSum> works_, phases_;
  std::map<std::pair<std::string, std::string>, ProfileSum> families_;
  std::map<Index, Layer> layers_;
};

/// Writes the traced steps in Chrome's trace format, for ui.perfetto.dev and chrome://tracing.
void write_trace(const Profile& profile, const io::Path& path);

/// Records a profile of a device until destroyed, if `on`.
template <class D>
class ProfiledRun {
 public:
  /// `steps`: number of steps of the run; a short run is traced from its first step.
  ProfiledRun(D& dev, bool on, Index steps) : dev_(dev), on_(on) {
    if (!on_) return;
    Profile::Limits limits;
    limits.skipped_steps = std::clamp<Index>(steps - limits.traced_steps, 0, limits.skipped_steps);
    profile_ = Profile(limits);
    dev_.set_profile(&profile_);
  }
  ProfiledRun(const ProfiledRun&) = delete;
  ProfiledRun& operator=(const ProfiledRun&) = delete;
  ~ProfiledRun() {
    if (on_) dev_.set_profile(nullptr);
  }

  bool on() const { return on_; }

  /// Logs the tables, followed by `memory`, and writes them and the trace into the folder.
  void report(const io::Path& folder, const std::string& memory) const {
    const std::string tables = concat(ProfileTables(profile_).text(), "\n", memory);
    lora::log::info("profile: ", tables);
    io::write_file(folder / "profile.md", std::string_view("# Profile\n\n" + tables));
    write_trace(profile_, folder / "profile.json");
  }

 private:
  D& dev_;
  bool on_;
  Profile profile_;
};

}  // namespace lora::run

#ifndef LORA_COMPILED
#  include "lora/run/profile.ipp"
#endif
