#pragma once

#include "lora/core/config.hpp"
#include "lora/core/profile.hpp"

namespace lora {

LORA_INLINE std::size_t Profile::around(std::size_t i, Kind kind) const {
  while (i != 0 && nodes_[i].kind != kind) i = nodes_[i].parent;
  return i;
}

LORA_INLINE void Profile::enter(Kind kind, std::string_view family, std::string_view name, Index number, Event begin) {
  const std::size_t node = child(open_.empty() ? 0 : open_.back().node, kind, family, name, number);
  if (open_.empty()) {
    const std::int64_t time = now();
    if (first_ < 0) first_ = time;
    step_ = {begin, time - first_};
  }
  const bool traced = steps_ >= limits_.skipped_steps && steps_ < limits_.skipped_steps + limits_.traced_steps;
  // Once full, nothing more is kept until the step ends, so that every span kept has its parents.
  const bool keeps = traced && traces_.size() < limits_.traces;
  open_.push_back({node, begin, keeps ? traces_.size() : none});
  if (keeps) traces_.push_back({node, 0, 0, 0, 0});
}

LORA_INLINE bool Profile::leave(double flops, double bytes, Event end) {
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

LORA_INLINE std::int64_t Profile::now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

LORA_INLINE std::size_t Profile::child(std::size_t parent, Kind kind, std::string_view family, std::string_view name,
                                       Index number) {
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

}  // namespace lora
