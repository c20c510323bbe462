#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>

#include "lora/core/profile.hpp"

namespace lora::test {

/// The phases of a profile of training steps. Each span must be of the kind that its name says, by which the tables of
/// a profile tell times apart, and each kernel lie in a phase.
inline std::set<std::string> checked_phases(const Profile& profile) {
  using Kind = Profile::Kind;
  const auto is_one_of = [](const std::string& name, std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  std::set<std::string> phases;
  for (std::size_t i = 1; i < profile.nodes().size(); ++i) {
    const Profile::Node& node = profile.nodes()[i];
    CAPTURE(node.name);
    switch (node.kind) {
      case Kind::root:
        CHECK(false);  // there is one
        break;
      case Kind::step:
        CHECK(node.name == "step");
        CHECK(node.parent == 0);
        break;
      case Kind::phase:
        CHECK(is_one_of(node.name, {"forward", "head", "recompute", "backward", "update"}));
        phases.insert(node.name);
        break;
      case Kind::layer:
        CHECK(node.name == "layer");
        break;
      case Kind::part:
        CHECK(is_one_of(node.name, {"q_proj, k_proj, v_proj", "o_proj", "gate_proj, up_proj", "down_proj", "low-rank",
                                    "qkv_proj", "gate_up_proj"}));
        break;
      case Kind::kernel:
        CHECK(profile.around(i, Kind::phase) != 0);
        break;
    }
  }
  return phases;
}

}  // namespace lora::test
