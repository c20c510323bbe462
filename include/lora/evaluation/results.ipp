#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lora/core/config.hpp"
#include "lora/core/hash.hpp"
#include "lora/core/printable.hpp"
#include "lora/data/batches/encode.hpp"
#include "lora/evaluation/results.hpp"
#include "lora/inputs/find_model.hpp"
#include "lora/inputs/paths.hpp"
#include "lora/io/files/read_file.hpp"
#include "lora/io/formats/json_view.hpp"
#include "lora/run/environment.hpp"

namespace lora::evaluation {

LORA_INLINE model::Evaluation sum_of(std::span<const EvaluatedSet> sets, bool of_base) {
  model::Evaluation sum;
  for (const EvaluatedSet& set : sets) sum += of_base ? set.base.value() : set.totals;
  return sum;
}

namespace detail {

LORA_INLINE void add_measures(io::Json& json, const model::Evaluation& totals) {
  json["loss"] = totals.loss();
  json["perplexity"] = totals.perplexity();
  json["labelled_tokens"] = totals.labeled;
  json["token_accuracy"] = totals.token_accuracy();
  json["records"] = totals.records;
  json["tokens"] = totals.tokens;
  if (totals.computed_tokens < totals.tokens) json["computed_tokens"] = totals.computed_tokens;
}

LORA_INLINE void add_scores(io::Json& json, const std::optional<data::AnswerScores>& scores) {
  if (!scores || scores->answers() == 0) return;
  json["exact_match"] = scores->exact_match();
  json["rouge_l"] = scores->rouge_l();
  json["exact_matches"] = scores->exact();
  json["answers"] = scores->answers();
}

/// What a record begins with; empty of tokens that no tokenizer is there for, or another than theirs.
LORA_INLINE std::string beginning_of(const data::Sample& sample, const tokenizer::Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return {};
  try {
    return shortened(data::prompt_of(sample, *tokenizer), 120);
  } catch (const FormatError&) {
    return {};
  }
}

/// The records with the largest loss per token, at most five.
LORA_INLINE io::Json worst_records(const EvaluatedSet& set, const tokenizer::Tokenizer* tokenizer) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < set.each.size(); ++i)
    if (set.each[i].labeled > 0) order.push_back(i);
  const std::size_t count = std::min<std::size_t>(5, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                    [&](std::size_t a, std::size_t b) {
                      const double first = set.each[a].loss(), second = set.each[b].loss();
                      return first != second ? first > second : a < b;
                    });
  io::Json list = io::Json::array();
  for (std::size_t place = 0; place < count; ++place) {
    const std::size_t i = order[place];
    const data::Sample sample = set.records.dataset()[static_cast<Index>(i)];
    list.push_back({{"record", i},
                    {"where", sample.where},
                    {"loss", set.each[i].loss()},
                    {"perplexity", std::exp(set.each[i].loss())},
                    {"labelled_tokens", set.each[i].labeled},
                    {"text", beginning_of(sample, tokenizer)}});
  }
  return list;
}

LORA_INLINE io::Json to_json(const EvaluatedSet& set, const tokenizer::Tokenizer* tokenizer) {
  io::Json json = {{"name", set.name}, {"path", set.path}};
  add_measures(json, set.totals);
  json["checksum"] = checksum_text(set.records.dataset().fingerprint());
  add_scores(json, set.scores);
  if (set.base) add_measures(json["base"], *set.base);
  json["worst_records"] = worst_records(set, tokenizer);
  return json;
}

/// The part of an earlier evaluation that is of a data set of this name: null if there is none. Results of one file
/// that were written before there were several are that file's.
LORA_INLINE const io::Json* set_named(const io::Json& earlier, const std::string& name) {
  if (const io::Json* sets = io::json_find(earlier, "datasets")) {
    for (const io::Json& set : *sets)
      if (set.at("name") == name) return &set;
    return nullptr;
  }
  const io::Json* files = io::json_find(earlier, "dataset");
  const bool is_one = files != nullptr && files->is_array() && files->size() == 1 && files->front().is_string();
  return is_one && io::Path(files->front().get<std::string>()).stem().native() == name ? &earlier : nullptr;
}

/// What changed since an earlier evaluation: of data sets with the same name, if nothing speaks for other data.
LORA_INLINE io::Json comparison_of(const io::Json& results, const EarlierEvaluation& earlier) {
  using io::Json;
  const auto field = [](const Json& json, const char* name) {
    const Json* found = io::json_find(json, name);
    return found != nullptr ? *found : Json();
  };
  Json sets = Json::array();
  for (const Json& set : results.at("datasets")) {
    Json line = {{"name", set.at("name")}};
    const Json* then = set_named(earlier.json, set.at("name"));
    if (then == nullptr) {
      line["differs"] = "it was not evaluated then";
    } else {
      line["loss"] = then->at("loss");
      line["perplexity"] = then->at("perplexity");
      const auto other = [&](const char* name, const Json& before, const Json& now) {
        return !before.at(name).is_null() && before.at(name) != now.at(name);
      };
      const Json before = {{"checksum", field(*then, "checksum")},
                           {"cutoff_len", field(earlier.json, "cutoff_len")},
                           {"labelled_tokens", field(*then, "labelled_tokens")}};
      const Json now = {{"checksum", set.at("checksum")},
                        {"cutoff_len", results.at("cutoff_len")},
                        {"labelled_tokens", set.at("labelled_tokens")}};
      if (other("checksum", before, now)) {
        line["differs"] = "it has other records now";
      } else if (other("labelled_tokens", before, now)) {
        line["differs"] = "other tokens were labeled then";
      } else if (other("cutoff_len", before, now)) {
        line["differs"] = "it was read in other windows then";
      } else {
        const double loss = set.at("loss"), loss_then = then->at("loss");
        line["loss_difference"] = loss - loss_then;
        line["perplexity_ratio"] = std::exp(loss - loss_then);
      }
    }
    sets.push_back(std::move(line));
  }
  return {{"file", earlier.file},
          {"model_name_or_path", field(earlier.json, "model_name_or_path")},
          {"adapter_name_or_path", field(earlier.json, "adapter_name_or_path")},
          {"datasets", std::move(sets)}};
}

}  // namespace detail

LORA_INLINE EarlierEvaluation read_earlier(const std::string& path) {
  const io::Path file = inputs::earlier_results(path);
  EarlierEvaluation earlier{file.native(), io::read_json(file)};
  const auto check = [](const io::JsonView& view) {
    const double loss = view.at<double>("loss");
    if (!(loss >= 0 && std::isfinite(loss))) view.fail("\"loss\" is ", loss, "; expected a finite number from 0");
    (void)view.at<double>("perplexity");
    (void)view.at<Index>("labelled_tokens");
  };
  const auto view = io::JsonView::of_object(earlier.json, earlier.file);
  check(view);
  if (const auto sets = view.find("datasets")) {
    if (!sets->json().is_array()) sets->fail("expected a list of data sets");
    for (std::size_t i = 0; i < sets->json().size(); ++i) {
      check(sets->element(i));
      (void)sets->element(i).at<std::string>("name");
    }
  }
  return earlier;
}

LORA_INLINE std::vector<EarlierEvaluation> read_all_earlier(std::span<const std::string> paths) {
  std::vector<EarlierEvaluation> all;
  for (const std::string& path : paths) {
    const io::Path file = inputs::earlier_results(path);
    for (const EarlierEvaluation& other : all) {
      std::error_code missing;  // reported by what reads it
      if (std::filesystem::equivalent(file, other.file, missing))
        fail<ConfigError>("key compare_with: given ", std::string_view(other.file), " twice",
                          path == other.file ? "" : concat(", as ", std::string_view(path), " too"),
                          "; allowed: each evaluation once");
    }
    all.push_back(read_earlier(path));
  }
  return all;
}

LORA_INLINE io::Json results_of(const settings::Config& config, const Circumstances& with,
                                std::span<const EvaluatedSet> sets, const std::optional<data::AnswerScores>& scores,
                                std::span<const EarlierEvaluation> earlier, const inputs::TextFiles& text,
                                double seconds) {
  io::Json json = io::Json::object();
  detail::add_measures(json, sum_of(sets, false));
  json["seconds"] = seconds;
  json["model_name_or_path"] = inputs::name_of_result(config.model_name_or_path);
  json["adapter_name_or_path"] = nullptr;
  if (!config.adapter_name_or_path.empty())
    json["adapter_name_or_path"] = inputs::name_of_result(config.adapter_name_or_path);
  json["dataset"] = io::Json::array();
  for (const auto& file : config.dataset) json["dataset"].push_back(file.path);
  json["cutoff_len"] = config.cutoff_len;
  json["template"] = nullptr;  // without conversations
  if (text.chat_template) json["template"] = text.chat_template->name();
  json["dtype"] = with.dtype;
  json["device"] = with.device;
  json["version"] = LORA_VERSION;
  json["time"] = run::time_text();
  detail::add_scores(json, scores);
  if (config.compare_base) detail::add_measures(json["base"], sum_of(sets, true));
  json["datasets"] = io::Json::array();
  for (const EvaluatedSet& set : sets) json["datasets"].push_back(detail::to_json(set, text.tokenizer.get()));
  for (const EarlierEvaluation& one : earlier) json["comparisons"].push_back(detail::comparison_of(json, one));
  return json;
}

}  // namespace lora::evaluation
