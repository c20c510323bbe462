#pragma once

#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/data/curriculum.hpp"
#include "lora/io/json_view.hpp"

// Keys whose values are lists of objects: their JSON, and what must hold in them.

namespace lora::settings {

namespace detail {

/// Throws   FormatError naming the first field that is none of these
inline void expect_fields(const io::JsonView& object, std::initializer_list<std::string_view> names) {
  if (!object.json().is_object()) object.fail("expected an object");
  for (const auto& [field, value] : io::json_fields(object.json())) {
    if (std::find(names.begin(), names.end(), field) != names.end()) continue;
    std::string list;
    for (const std::string_view name : names) list += concat(list.empty() ? "" : ", ", name);
    object.fail("the field \"", field, "\"; expected ", list);
  }
}

}  // namespace detail

/// Reads [{"until": 0.5, "mix": {"label": 1, …}}, …].
/// Throws   FormatError naming the stage and what is wrong
inline std::vector<data::CurriculumStage> curriculum_from(const io::Json& json) {
  const io::JsonView list(json, "curriculum_stages");
  if (!json.is_array()) list.fail("expected an array of stages");
  std::vector<data::CurriculumStage> stages;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const io::JsonView object(json[i], concat("stage ", i + 1));
    detail::expect_fields(object, {"until", "mix"});
    data::CurriculumStage& stage = stages.emplace_back();
    stage.until = object.at<double>("until");
    const auto mix = object.find("mix");
    if (!mix || !mix->json().is_object()) object.fail("\"mix\" must be an object of labels and their shares");
    mix->for_each_field([&](const std::string& label, const io::JsonView& share) {
      stage.mix.emplace_back(label, share.as<double>());
    });
  }
  return stages;
}

inline io::Json as_json(const std::vector<data::CurriculumStage>& stages) {
  io::Json list = io::Json::array();
  for (const data::CurriculumStage& stage : stages) {
    io::Json mix = io::Json::object();
    for (const auto& [label, share] : stage.mix) mix[label] = share;
    list.push_back(io::json_object({{"until", stage.until}, {"mix", std::move(mix)}}));
  }
  return list;
}

/// What is wrong with a curriculum; nothing if it can be followed.
inline std::optional<std::string> offence(const std::vector<data::CurriculumStage>& stages) {
  if (stages.empty()) return "no stage";
  double before = 0;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const auto& [until, mix] = stages[i];
    const auto of_stage = [&](const auto&... what) { return concat("stage ", i + 1, " with ", what...); };
    if (!(until > before && until <= 1)) return of_stage("until ", until, " after ", before);
    before = until;
    double sum = 0;
    std::set<std::string_view> labels;
    for (const auto& [label, share] : mix) {
      if (!(share >= 0 && std::isfinite(share))) return of_stage("a share of ", share, " for ", label);
      if (!labels.insert(label).second) return of_stage("two shares for ", label);
      sum += share;
    }
    if (!(std::fabs(sum - 1) <= 1e-6)) return of_stage("shares that add up to ", sum);
  }
  if (before != 1) return concat("a last stage with until ", before);
  return std::nullopt;
}

}  // namespace lora::settings
