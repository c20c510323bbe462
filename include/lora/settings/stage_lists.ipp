#pragma once

#include "lora/core/config.hpp"
#include "lora/settings/stage_lists.hpp"

namespace lora::settings::detail {

LORA_INLINE void expect_fields(const io::JsonView& object, std::initializer_list<std::string_view> names) {
  if (!object.json().is_object()) object.fail("expected an object");
  for (const auto& [field, value] : io::json_fields(object.json())) {
    if (std::find(names.begin(), names.end(), field) != names.end()) continue;
    std::string list;
    for (const std::string_view name : names) list += concat(list.empty() ? "" : ", ", name);
    object.fail("the field \"", field, "\"; expected ", list);
  }
}

LORA_INLINE void take_names(const io::JsonView& object, std::string_view field, data::RecordColumns::Names& names) {
  const auto given = object.find(field);
  if (!given) return;
  if (!given->json().is_object()) object.fail("\"", field, "\" must be an object of names");
  given->for_each_field([&](const std::string& name, const io::JsonView& value) {
    if (!value.json().is_null()) names.emplace_back(name, value.as<std::string>());
  });
}

LORA_INLINE void take_split(const io::JsonView& object, data::DataFile& file) {
  const auto split = object.get<std::string>("split");
  if (!split) return;
  if (!data::slice_of(*split, 1)) object.fail(std::string_view(data::told_split(*split)));
  if (*split != "train" && *split != "all") file.split = *split;
}

LORA_INLINE io::Json names_as_json(const data::RecordColumns::Names& names) {
  io::Json object = io::Json::object();
  for (const auto& [name, field] : names) object[name] = field;
  return object;
}

}  // namespace lora::settings::detail

namespace lora::settings {

LORA_INLINE std::optional<io::Json> file_objects(const io::Json& json) {
  if (json.is_string()) {  // of the command line; several of them are joined by commas
    const auto& text = json.get_ref<const std::string&>();
    // Paths may begin like that as well, but not go on so.
    std::string begin;
    for (const char c : std::string_view(text).substr(0, 64))
      if (c != ' ' && c != '\t' && c != '\n' && c != '\r') begin += c;
    if (begin.starts_with("{\"")) return io::parse_json("[" + text + "]", "the value");
    if (begin.starts_with("[{") || begin.starts_with("[\"")) return io::parse_json(text, "the value");
    if (text.find("{\"path\"") != text.npos)
      fail<FormatError>("objects stand beside paths; write one array: [\"a.jsonl\", {\"path\": \"b.jsonl\"}]");
    return std::nullopt;
  }
  const auto is_object = [](const io::Json& element) { return element.is_object(); };
  if (json.is_object()) return io::Json::array({json});
  if (json.is_array() && std::any_of(json.begin(), json.end(), is_object)) return json;
  return std::nullopt;
}

LORA_INLINE std::vector<data::DataFile> files_from(const io::Json& json) {
  std::vector<data::DataFile> files;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const std::string where = concat("file ", i + 1);
    if (json[i].is_string()) {
      files.emplace_back(json[i].get<std::string>());
      continue;
    }
    const io::JsonView object(json[i], where);
    detail::expect_fields(object, {"path", "weight", "name", "max_samples", "num_samples", "split", "columns", "tags"});
    data::DataFile& file = files.emplace_back(object.at<std::string>("path"));
    if (file.path.empty()) object.fail("\"path\" is empty");
    file.weight = object.get<double>("weight");
    file.name = object.get<std::string>("name").value_or("");
    file.max_samples = object.get<Index>("max_samples");
    detail::take_split(object, file);
    detail::take_names(object, "columns", file.columns.columns);
    detail::take_names(object, "tags", file.columns.tags);
    if (const auto wrong = data::offence(file.columns)) object.fail("columns or tags with ", std::string_view(*wrong));
    if (file.weight && !(*file.weight > 0 && std::isfinite(*file.weight)))
      object.fail("\"weight\" is ", *file.weight, "; expected a number above 0");
    file.num_samples = object.get<Index>("num_samples");
    for (const auto& [field, count] : {std::pair{"max_samples", file.max_samples}, {"num_samples", file.num_samples}})
      if (count && *count < 1) object.fail("\"", field, "\" is ", *count, "; expected 1 or more");
  }
  return files;
}

LORA_INLINE bool fits(const data::DataFile& file) {
  const auto readable = [](const std::string& text) {
    return tokenizer::unicode::find_invalid_utf8(text) == text.npos;  // run_config.json could not repeat it
  };
  return !file.path.empty() && readable(file.path) && readable(file.name) &&
         (!file.weight || (*file.weight > 0 && std::isfinite(*file.weight))) &&
         (!file.max_samples || *file.max_samples >= 1) && (!file.num_samples || *file.num_samples >= 1) &&
         !data::offence(file.columns) && (file.split.empty() || data::slice_of(file.split, 1)) &&
         std::all_of(file.columns.columns.begin(), file.columns.columns.end(),
                     [&](const auto& column) { return readable(column.second); }) &&
         std::all_of(file.columns.tags.begin(), file.columns.tags.end(),
                     [&](const auto& tag) { return readable(tag.second); });
}

LORA_INLINE io::Json as_json(const data::DataFile& file) {
  if (file.is_path()) return file.path;
  io::Json object = io::json_object({{"path", file.path}});
  if (file.weight) object["weight"] = *file.weight;
  if (!file.name.empty()) object["name"] = file.name;
  if (!file.split.empty()) object["split"] = file.split;
  if (file.num_samples) object["num_samples"] = *file.num_samples;
  if (file.max_samples) object["max_samples"] = *file.max_samples;
  if (!file.columns.columns.empty()) object["columns"] = detail::names_as_json(file.columns.columns);
  if (!file.columns.tags.empty()) object["tags"] = detail::names_as_json(file.columns.tags);
  return object;
}

LORA_INLINE io::Json as_json(const std::vector<data::DataFile>& files) {
  io::Json list = io::Json::array();
  for (const data::DataFile& file : files) list.push_back(as_json(file));
  return list;
}

LORA_INLINE Index weights_in(const std::vector<data::DataFile>& files) {
  return std::count_if(files.begin(), files.end(), [](const data::DataFile& file) { return file.weight.has_value(); });
}

LORA_INLINE bool have_names(const std::vector<data::DataFile>& files) {
  return std::any_of(files.begin(), files.end(), [](const data::DataFile& file) { return !file.name.empty(); });
}

LORA_INLINE bool share_a_name(const std::vector<data::DataFile>& files) {
  std::set<std::string_view> names;
  return std::any_of(files.begin(), files.end(),
                     [&](const data::DataFile& file) { return !file.name.empty() && !names.insert(file.name).second; });
}

LORA_INLINE std::vector<double> shares_of(const Config& config) {
  std::vector<double> shares = config.interleave_probs;
  if (shares.empty())
    for (const data::DataFile& file : config.dataset) shares.push_back(file.weight.value_or(1));
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= sum;
  return shares;
}

LORA_INLINE std::vector<data::CurriculumStage> curriculum_from(const io::Json& json) {
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

LORA_INLINE io::Json as_json(const std::vector<data::CurriculumStage>& stages) {
  io::Json list = io::Json::array();
  for (const data::CurriculumStage& stage : stages) {
    io::Json mix = io::Json::object();
    for (const auto& [label, share] : stage.mix) mix[label] = share;
    list.push_back(io::json_object({{"until", stage.until}, {"mix", std::move(mix)}}));
  }
  return list;
}

LORA_INLINE std::optional<std::string> offence(const std::vector<data::CurriculumStage>& stages) {
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

LORA_INLINE std::string in_line(const std::string& text) {
  const std::string quoted = io::to_text(io::Json(text), -1);
  return text.empty() ? quoted : quoted.substr(1, quoted.size() - 2);
}

LORA_INLINE std::string stage_name(const Config& config, std::size_t stage) {
  const std::string name = config.stages[stage].name.empty() ? "" : in_line(config.stages[stage].name);
  const std::string number = concat("stage ", stage + 1);
  return name.empty() || name == number ? number : concat(number, " (", name, ")");
}

LORA_INLINE StageConfigs::StageConfigs(const Config& run) : said_(&run.stages), shared_(run) {
  std::vector<StageSettings>().swap(shared_.stages);
}

LORA_INLINE Config StageConfigs::operator[](std::size_t number) const {
  Config own = shared_;
  if (said_->empty()) return own;
  const StageSettings& stage = (*said_)[number];
  if (stage.warmup_steps && !stage.warmup_ratio) own.warmup_ratio = 0;
  if (stage.warmup_ratio && !stage.warmup_steps) own.warmup_steps = 0;
  if (!stage.use_curriculum.value_or(own.use_curriculum)) {  // the run's may be another stage's
    own.curriculum_field = Config{}.curriculum_field;
    own.curriculum_stages = Config{}.curriculum_stages;
    own.curriculum_seed = Config{}.curriculum_seed;
  }
  for_each_stage_key([&](const char*, auto member, auto target) {
    if (stage.*member) own.*target = *(stage.*member);
  });
  return own;
}

LORA_INLINE Index longest_cutoff(const Config& config) {
  if (config.stages.empty()) return config.cutoff_len;
  Index longest = 0;
  for (const StageSettings& stage : config.stages)
    longest = std::max(longest, stage.cutoff_len.value_or(config.cutoff_len));
  return longest;
}

LORA_INLINE bool any_curriculum(const Config& config) {
  if (config.stages.empty()) return config.use_curriculum;
  return std::any_of(config.stages.begin(), config.stages.end(),
                     [&](const StageSettings& stage) { return stage.use_curriculum.value_or(config.use_curriculum); });
}

LORA_INLINE io::Json as_json(const std::vector<StageSettings>& stages) {
  io::Json list = io::Json::array();
  for (const StageSettings& stage : stages) {
    io::Json& object = list.emplace_back(io::Json::object());
    if (!stage.name.empty()) object["name"] = stage.name;
    if (stage.until_step) object["until_step"] = *stage.until_step;
    if (stage.until_epoch) object["until_epoch"] = *stage.until_epoch;
    for_each_stage_key([&](const char* key, auto member, auto) {
      if (!(stage.*member)) return;
      if constexpr (requires { as_json(*(stage.*member)); }) {
        object[key] = as_json(*(stage.*member));
      } else {
        object[key] = *(stage.*member);
      }
    });
  }
  return list;
}

LORA_INLINE std::optional<std::string> offence(const std::vector<StageSettings>& stages) {
  std::optional<Index> step;
  std::optional<double> epoch;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const StageSettings& stage = stages[i];
    const auto of_stage = [&](const auto&... what) { return concat("stage ", i + 1, " with ", what...); };
    if (stage.until_step && stage.until_epoch) return of_stage("both until_step and until_epoch");
    if (!stage.ends() && i + 1 < stages.size()) return of_stage("neither until_step nor until_epoch");
    if (stage.until_step) {
      const Index before = step.value_or(0);
      if (*stage.until_step <= before) return of_stage("until_step ", *stage.until_step, " after ", before);
      step = stage.until_step;
    }
    if (stage.until_epoch) {
      const double before = epoch.value_or(0);
      if (!(*stage.until_epoch > before && *stage.until_epoch <= 1e6))
        return of_stage("until_epoch ", *stage.until_epoch, " after ", before);
      epoch = stage.until_epoch;
    }
  }
  return std::nullopt;
}

}  // namespace lora::settings
