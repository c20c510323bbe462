#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "lora/doctor/held_device.hpp"
#include "lora/doctor/kernels.hpp"
#include "lora/doctor/report.hpp"
#include "lora/tensor/page_locked.hpp"
#include "lora/tensor/profile_scope.hpp"

namespace lora::doctor {

/// Shapes for times: `width` columns and as many rows, in heads of 128.
inline Sizes sizes_to_time(Index width) {
  const Index heads = std::max<Index>(1, width / 128);
  Sizes sizes;
  sizes.rows = width;
  sizes.width = sizes.out = width;
  sizes.rank = 16;
  sizes.heads = heads;
  sizes.kv_heads = heads % 2 == 0 ? heads / 2 : heads;
  sizes.head_width = 128;
  sizes.ffn = 3 * width;
  sizes.vocabulary = 8 * width;
  sizes.parameters = width * width;
  sizes.sequences = {width};
  sizes.gap = 0;
  return sizes;
}

namespace detail {

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// Measures launches, one at a time, by the device's own events, and counts what they do.
template <AnyDevice D>
class Stopwatch {
 public:
  Stopwatch(D& dev, int rounds) : dev_(dev), rounds_(rounds) {}

  void run(const Launch& launch) {
    Profile profile({.skipped_steps = 0, .traced_steps = 0, .traces = 0});
    dev_.set_profile(&profile);
    try {  // the first launch, which prepares things as well
      const ProfileScope span(dev_, Profile::Kind::step, "launch");
      launch();
    } catch (...) {
      dev_.set_profile(nullptr);
      throw;
    }
    dev_.set_profile(nullptr);
    for (const Profile::Node& node : profile.nodes())
      if (node.kind == Profile::Kind::kernel && profile.nodes()[node.parent].kind == Profile::Kind::step) {
        flops += node.flops;
        bytes += node.bytes;
      }
    launch();
    std::vector<Event> events = {dev_.record(Stream::compute)};
    for (int i = 0; i < rounds_; ++i) {
      launch();
      events.push_back(dev_.record(Stream::compute));
    }
    dev_.synchronize();
    std::vector<double> times;
    for (std::size_t i = 1; i < events.size(); ++i)
      times.push_back(static_cast<double>(dev_.nanoseconds(events[i - 1], events[i])) * 1e-9);
    for (const Event event : events) dev_.release(event);
    seconds = median(times);
  }

  double seconds = 0, flops = 0, bytes = 0;

 private:
  D& dev_;
  int rounds_;
};

}  // namespace detail

/// The time of a case at a shape, the median of so many launches.
template <AnyDevice D, class T>
TimeRow time_of(const Case<D, T>& one, D& dev, const Sizes& sizes, int rounds = 5) {
  constexpr Precision precision = precision_of<T>();
  detail::Stopwatch<D> watch(dev, rounds);
  Trial<D, T> trial(dev, precision, sizes, [&](const Launch& launch) { watch.run(launch); });
  one.on_device(trial);
  return {std::string(one.family),
          std::string(one.kernel),
          std::string(lora::name_of(precision)),
          watch.seconds,
          watch.flops,
          watch.bytes,
          ""};
}

/// The widest shape at which one launch of each takes a second at most, by what narrower ones took.
template <class Make>
Index width_to_time(HeldDevice<Make>& device) {
  using D = typename HeldDevice<Make>::Device;
  constexpr double most = 1;
  constexpr Index widest = 4096, factor = 4;
  for (Index width = 256;; width *= factor) {
    double seconds = 0;
    for (const Case<D, float>& one : cases<D, float>()) {
      if (!one.timed) continue;
      try {
        seconds += time_of(one, device.get(), sizes_to_time(width), 1).seconds;
      } catch (const std::exception&) {  // its row will tell
        device.look_after();
      }
    }
    const double wider = static_cast<double>(factor * factor * factor) * seconds;  // products grow so
    if (width == widest || wider > most) return width;
  }
}

/// Times of what takes most, in T.
template <class T, class Make, class Begins>
void time_kernels(HeldDevice<Make>& device, Index width, Report& report, const Begins& begins) {
  using D = typename HeldDevice<Make>::Device;
  const std::string type(lora::name_of(precision_of<T>()));
  begins("times in " + type);
  const Sizes sizes = sizes_to_time(width);
  for (const Case<D, T>& one : cases<D, T>()) {
    if (!one.timed) continue;
    try {
      report.times.push_back(time_of(one, device.get(), sizes));
    } catch (const std::exception& error) {
      report.times.push_back(
          {std::string(one.family), std::string(one.kernel), type, 0, 0, 0, std::string(error.what())});
      device.look_after();
    }
  }
}

/// Copies between host and device, and launches of next to nothing.
template <AnyDevice D>
std::vector<Fact> speeds_of(D& dev) {
  using Clock = std::chrono::steady_clock;
  const auto seconds = [&](const auto& f) {
    std::vector<double> times;
    for (int i = 0; i < 3; ++i) {
      dev.synchronize();
      const auto begin = Clock::now();
      f();
      dev.synchronize();
      times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
    return detail::median(times);
  };
  constexpr Index bytes = Index{32} << 20;
  Tensor<D, std::byte> there(dev, bytes);
  std::vector<std::byte> pageable(static_cast<std::size_t>(bytes));
  const PageLocked<D> locked(dev, pageable.size());
  std::fill_n(locked.data(), locked.bytes(), std::byte{1});
  std::vector<Fact> facts;
  const auto add = [&](std::string what, double time) {
    facts.push_back({std::move(what), concat(significant(static_cast<double>(bytes) / time / 1e9, 3), " GB/s")});
  };
  std::byte* const memory = there.view().data();
  add("32 MiB to the device, page-locked",
      seconds([&] { dev.copy_from_host(memory, locked.data(), locked.bytes(), Stream::copy); }));
  add("32 MiB to the device, other memory",
      seconds([&] { dev.copy_from_host(memory, pageable.data(), pageable.size()); }));
  add("32 MiB to the host, page-locked",
      seconds([&] { dev.start_copy_to_host(locked.data(), memory, locked.bytes(), Stream::copy); }));
  add("32 MiB to the host, other memory", seconds([&] { dev.copy_to_host(pageable.data(), memory, pageable.size()); }));

  constexpr int launches = 1000;
  Tensor<D, float> small(dev, 1, 64);
  std::vector<double> queueing;
  const double all = seconds([&] {
    const auto begin = Clock::now();
    for (int i = 0; i < launches; ++i) kernel::fill(dev, small.view(), 1.0);
    queueing.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  });
  const double queued = detail::median(queueing);
  facts.push_back(
      {"a launch of next to nothing", concat(significant(all / launches * 1e6, 3), " µs, of which the host's ",
                                             significant(queued / launches * 1e6, 3), " µs")});
  const double waits = seconds([&] {
    for (int i = 0; i < 100; ++i) dev.synchronize();
  });
  facts.push_back({"a wait for nothing", concat(significant(waits / 100 * 1e6, 3), " µs")});
  return facts;
}

}  // namespace lora::doctor
