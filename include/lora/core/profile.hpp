#pragma once

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lora/core/scalar.hpp"

namespace lora {

/// A point in a device's work, by the number that the device has given it.
struct Event {
  std::int64_t number = -1;
};

/// Where the time of optimizer steps goes: a tree of nested spans with time, calls, FLOPs and bytes, summed over all
/// steps, and the single spans of the first few steps after a warm-up. A device carries a pointer to one, or null.
///
/// Work outside of a span of kind `step` is not recorded. Spans open and close on the thread that owns the device;
/// their times are those of its work, known once a step is done.
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
  struct Trace {
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
    std::size_t traces = 100'000;
  };

  Profile() : Profile(Limits()) {}
  explicit Profile(const Limits& limits) : limits_(limits), nodes_(1) {}

  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<Trace>& traces() const { return traces_; }
  const Limits& limits() const { return limits_; }
  Index steps() const { return steps_; }

  /// The nearest node of that kind around node i, itself included; 0, the root, if there is none.
  std::size_t around(std::size_t i, Kind kind) const {
    while (i != 0 && nodes_[i].kind != kind) i = nodes_[i].parent;
    return i;
  }

  /// Whether a span of this kind would be recorded now.
  bool wants(Kind kind) const { return !open_.empty() || kind == Kind::step; }

  /// Opens a span that is wanted; `begin` is the device's.
  [[gnu::noinline]] void enter(Kind kind, std::string_view family, std::string_view name, Index number, Event begin) {
    const std::size_t node = child(open_.empty() ? 0 : open_.back().node, kind, family, name, number);
    if (open_.empty()) {
      const std::int64_t time = now();
      if (first_ < 0) first_ = time;
      step_ = {begin, std::max(time - first_, end_)};
    }
    const bool traced = steps_ >= limits_.skipped_steps && steps_ < limits_.skipped_steps + limits_.traced_steps;
    // Once full, nothing more is kept until the step ends, so that every span kept has its parents.
    const bool keeps = traced && traces_.size() < limits_.traces;
    open_.push_back({node, begin, keeps ? traces_.size() : none});
    if (keeps) traces_.push_back({node, 0, 0, 0, 0});
  }

  /// Closes the last one. True at the end of a step, which is to be settled then.
  [[gnu::noinline]] bool leave(double flops, double bytes, Event end) {
    const Open open = open_.back();
    open_.pop_back();
    Node& node = nodes_[open.node];
    ++node.calls;
    node.flops += flops;
    node.bytes += bytes;
    if (open.trace != none) {
      traces_[open.trace].flops = flops;
      traces_[open.trace].bytes = bytes;
    }
    closed_.push_back({open, end});
    if (node.kind == Kind::step) ++steps_;
    return open_.empty();
  }

  /// Closes the last one where the device has failed, which then has no end for it. What was recorded of the step goes
  /// with it.
  template <class Release>
  void cancel(const Release& release) {
    release(open_.back().begin);
    open_.pop_back();
    if (open_.empty()) drop(release);
  }

  /// Adds the times of a step whose work is done, as the device measured them.
  ///   nanoseconds(a, b): from event a to event b;   release(event): nobody asks for it again
  template <class Nanoseconds, class Release>
  void settle(const Nanoseconds& nanoseconds, const Release& release) {
    for (const Closed& span : closed_) {
      const std::int64_t taken = nanoseconds(span.open.begin, span.end);
      nodes_[span.open.node].nanoseconds += taken;
      if (span.open.trace == none) continue;
      Trace& trace = traces_[span.open.trace];
      trace.begin = step_.offset + nanoseconds(step_.begin, span.open.begin);
      trace.nanoseconds = taken;
    }
    if (!closed_.empty()) end_ = step_.offset + nanoseconds(step_.begin, closed_.back().end);
    drop(release);
  }
  /// The same of a step that failed, without its times.
  template <class Release>
  void drop(const Release& release) {
    for (const Closed& span : closed_) {
      release(span.open.begin);
      release(span.end);
    }
    closed_.clear();
  }

 private:
  static constexpr std::size_t none = ~std::size_t{0};

  struct Open {
    std::size_t node;
    Event begin;
    std::size_t trace;
  };
  struct Closed {
    Open open;
    Event end;
  };
  struct Step {
    Event begin;
    // By the host's clock, from the first step's begin; but not before the last one's end, whose device has a clock of
    // its own, and a host that was interrupted between the two.
    std::int64_t offset = 0;
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
  std::vector<Trace> traces_;
  std::vector<Open> open_;
  std::vector<Closed> closed_;  // of the step that is running, until it is settled
  Step step_;
  Index steps_ = 0;
  std::int64_t first_ = -1;  // the first step's begin, by the host's clock
  std::int64_t end_ = 0;     // of the last step that was settled, from there
};

}  // namespace lora
