#pragma once

#include <time.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lora/core/scalar.hpp"

namespace lora {

/// Where the time of optimizer steps goes: a tree of nested spans with time, calls, FLOPs and bytes, summed over all
/// steps, and the single spans of the first few steps after a warm-up. A device carries a pointer to one, or null.
///
/// Work outside of a span of kind `step` is not recorded. Spans open and close on the thread that owns the device.
class Profile {
 public:
  enum class Kind : std::uint8_t {
    root,
    step,    ///< one optimizer step
    phase,   ///< of a step: data, forward, head, backward, recompute, update
    layer,   ///< of a model; has a number
    part,    ///< of a layer: the module, or one of its stages
    kernel,  ///< one call of a kernel
  };

  /// One place in the tree; calls of the same name under the same parent share it.
  struct Node {
    Kind kind = Kind::root;
    std::string name;
    std::string family;  ///< of a kernel: its header
    Index number = -1;   ///< of a layer
    std::size_t parent = 0;
    Index calls = 0;
    std::int64_t nanoseconds = 0;
    double flops = 0;  ///< of the calls at this node; 0 where the family does not count them
    double bytes = 0;  ///< each operand once
    std::vector<std::size_t> children;
    std::size_t last = 0;  // of the children, the one that was entered last
  };

  /// One span of a traced step. Those that lie within it come after it.
  struct Event {
    std::size_t node = 0;
    std::int64_t begin = 0;  ///< nanoseconds since the first step began
    std::int64_t nanoseconds = 0;
    double flops = 0;
    double bytes = 0;
  };

  /// What is kept as single spans.
  struct Limits {
    Index skipped_steps = 2;  ///< warm-up: first touch of memory, first preparation of products
    Index traced_steps = 3;
    std::size_t events = 100'000;
  };

  Profile() : Profile(Limits()) {}
  explicit Profile(const Limits& limits) : limits_(limits), nodes_(1) {}

  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<Event>& events() const { return events_; }
  const Limits& limits() const { return limits_; }
  Index steps() const { return steps_; }

  /// The nearest node of that kind around node i, itself included; 0, the root, if there is none.
  std::size_t around(std::size_t i, Kind kind) const {
    while (i != 0 && nodes_[i].kind != kind) i = nodes_[i].parent;
    return i;
  }

  [[gnu::noinline]] void enter(Kind kind, std::string_view family, std::string_view name, Index number) {
    if (ignored_ > 0 || (open_.empty() && kind != Kind::step)) {
      ++ignored_;
      return;
    }
    const std::size_t node = child(open_.empty() ? 0 : open_.back().node, kind, family, name, number);
    const std::int64_t begin = now();
    if (first_ < 0) first_ = begin;
    const bool traced = steps_ >= limits_.skipped_steps && steps_ < limits_.skipped_steps + limits_.traced_steps;
    // Once full, nothing more is kept until the step ends, so that every span kept has its parents.
    const bool keeps = traced && events_.size() < limits_.events;
    open_.push_back({node, begin, keeps ? events_.size() : none});
    if (keeps) events_.push_back({node, begin - first_, 0, 0, 0});
  }

  [[gnu::noinline]] void leave(double flops, double bytes) {
    if (ignored_ > 0) {
      --ignored_;
      return;
    }
    const Open open = open_.back();
    open_.pop_back();
    const std::int64_t taken = now() - open.begin;
    Node& node = nodes_[open.node];
    ++node.calls;
    node.nanoseconds += taken;
    node.flops += flops;
    node.bytes += bytes;
    if (open.event != none) {
      Event& event = events_[open.event];
      event.nanoseconds = taken;
      event.flops = flops;
      event.bytes = bytes;
    }
    if (node.kind == Kind::step) ++steps_;
  }

 private:
  static constexpr std::size_t none = ~std::size_t{0};

  struct Open {
    std::size_t node;
    std::int64_t begin;
    std::size_t event;
  };

  static std::int64_t now() {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  }

  // Steps repeat: the child looked up is usually the last one entered, or the one after it.
  std::size_t child(std::size_t parent, Kind kind, std::string_view family, std::string_view name, Index number) {
    const std::size_t count = nodes_[parent].children.size();
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t at = (nodes_[parent].last + i) % count;
      const std::size_t candidate = nodes_[parent].children[at];
      const Node& node = nodes_[candidate];
      if (node.number != number || node.kind != kind || node.name != name || node.family != family) continue;
      nodes_[parent].last = at;
      return candidate;
    }
    const std::size_t fresh = nodes_.size();
    Node& node = nodes_.emplace_back();
    node.kind = kind;
    node.name = name;
    node.family = family;
    node.number = number;
    node.parent = parent;
    nodes_[parent].last = count;
    nodes_[parent].children.push_back(fresh);
    return fresh;
  }

  Limits limits_;
  std::vector<Node> nodes_;
  std::vector<Event> events_;
  std::vector<Open> open_;
  Index ignored_ = 0;  // spans that are open but not recorded
  Index steps_ = 0;
  std::int64_t first_ = -1;
};

/// Opens a span and closes it on destruction. Without a profile it costs one check for null.
class Span {
 public:
  Span(Profile* profile, Profile::Kind kind, std::string_view name, Index number = -1) : profile_(profile) {
    if (profile_ != nullptr) profile_->enter(kind, {}, name, number);
  }
  /// Of a kernel. `bytes`: each operand once, one that is added to twice.
  Span(Profile* profile, std::string_view family, std::string_view name, double flops, double bytes)
      : profile_(profile), flops_(flops), bytes_(bytes) {
    if (profile_ != nullptr) profile_->enter(Profile::Kind::kernel, family, name, -1);
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  ~Span() {
    if (profile_ != nullptr) profile_->leave(flops_, bytes_);
  }

 private:
  Profile* profile_;
  double flops_ = 0;
  double bytes_ = 0;
};

}  // namespace lora
