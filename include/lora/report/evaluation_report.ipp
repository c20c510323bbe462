#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "lora/core/config.hpp"
#include "lora/core/format.hpp"
#include "lora/core/printable.hpp"
#include "lora/report/evaluation_report.hpp"

namespace lora::report {

namespace detail {

LORA_INLINE std::string cell(const std::string& text) {
  std::string safe;
  for (const char c : printable(text)) {
    if (c == '|' || c == '\\' || c == '`' || c == '<' || c == '*' || c == '_' || c == '[') safe += '\\';
    safe += c;
  }
  return safe;
}

LORA_INLINE std::string row(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (const std::string& text : cells) line += " " + text + " |";
  return line + "\n";
}
LORA_INLINE std::string head(const std::vector<std::string>& cells) {
  std::string rule = "|---|";
  for (std::size_t i = 1; i < cells.size(); ++i) rule += "---:|";
  return row(cells) + rule + "\n";
}

LORA_INLINE double number(const io::Json& json, const char* name) { return json.at(name).get<double>(); }
LORA_INLINE std::string perplexity(double value) {
  const double digits = value > 0 && std::isfinite(value) ? std::floor(std::log10(value)) : 0;
  return digits > 8 ? significant(value, 5) : fixed(value, std::clamp(4 - static_cast<int>(digits), 0, 9));
}
LORA_INLINE std::string count(const io::Json& json, const char* name) { return io::to_text(json.at(name), -1); }
LORA_INLINE std::string percent(double share) { return fixed(100 * share, 1) + " %"; }
LORA_INLINE std::string signed_text(double value) { return (value < 0 ? "−" : "+") + fixed(std::fabs(value), 4); }

LORA_INLINE std::string data_sets(const io::Json& results) {
  const bool answered = results.contains("exact_match");
  std::vector<std::string> names = {"data set", "records", "labeled tokens", "loss", "perplexity", "token accuracy"};
  if (answered) names.insert(names.end(), {"exact match", "ROUGE-L"});
  std::string text = "\n## Data sets\n\n" + head(names);
  const auto line = [&](const std::string& name, const io::Json& set) {
    std::vector<std::string> cells = {cell(name),
                                      count(set, "records"),
                                      count(set, "labelled_tokens"),
                                      fixed(number(set, "loss"), 4),
                                      perplexity(number(set, "perplexity")),
                                      percent(number(set, "token_accuracy"))};
    const bool scored = set.contains("exact_match");
    if (answered) {
      cells.push_back(scored ? percent(number(set, "exact_match")) : "");
      cells.push_back(scored ? percent(number(set, "rouge_l")) : "");
    }
    return row(cells);
  };
  for (const io::Json& set : results.at("datasets")) text += line(set.at("name"), set);
  return text + line("all", results);
}

LORA_INLINE std::string against_base(const io::Json& results) {
  std::string text = "\n## Against the base model\n\n" + head({"data set", "loss of the base", "loss", "difference",
                                                               "perplexity of the base", "perplexity", "ratio"});
  const auto line = [&](const std::string& name, const io::Json& set) {
    const double before = number(set.at("base"), "loss"), now = number(set, "loss");
    return row({cell(name), fixed(before, 4), fixed(now, 4), signed_text(now - before),
                perplexity(number(set.at("base"), "perplexity")), perplexity(number(set, "perplexity")),
                significant(std::exp(now - before), 4)});
  };
  for (const io::Json& set : results.at("datasets")) text += line(set.at("name"), set);
  return text + line("all", results);
}

LORA_INLINE std::string against_earlier(const io::Json& comparison, const io::Json& results) {
  std::string text = concat("\n## Against ", cell(comparison.at("file")), "\n\n");
  const auto fact = [&](const char* name, std::string_view label) {
    const io::Json& value = comparison.at(name);
    if (value.is_string()) text += concat("- ", label, ": ", cell(value), "\n");
  };
  fact("model_name_or_path", "model");
  fact("adapter_name_or_path", "adapter");
  text += "\n" + head({"data set", "loss then", "loss", "difference", "perplexity then", "perplexity", "ratio"});
  std::string notes;
  std::size_t i = 0;
  for (const io::Json& line : comparison.at("datasets")) {
    const io::Json& set = results.at("datasets").at(i++);
    const bool was = line.contains("loss"), same = line.contains("loss_difference");
    text += row({cell(line.at("name")), was ? fixed(number(line, "loss"), 4) : "", fixed(number(set, "loss"), 4),
                 same ? signed_text(number(line, "loss_difference")) : "",
                 was ? perplexity(number(line, "perplexity")) : "", perplexity(number(set, "perplexity")),
                 same ? significant(number(line, "perplexity_ratio"), 4) : ""});
    if (!same) notes += concat("- ", cell(line.at("name")), " is not compared: ", cell(line.at("differs")), "\n");
  }
  return text + (notes.empty() ? "" : "\n" + notes);
}

/// The measures of all data sets together.
LORA_INLINE std::string measures(const io::Json& results) {
  std::string text = "\n" + head({"measure", "value"});
  text += row({"loss", fixed(number(results, "loss"), 4)});
  text += row({"perplexity", perplexity(number(results, "perplexity"))});
  text += row({"token accuracy", percent(number(results, "token_accuracy"))});
  if (results.contains("exact_match")) {
    text += row({"exact match", percent(number(results, "exact_match"))});
    text += row({"ROUGE-L", percent(number(results, "rouge_l"))});
  }
  return text + row({"labeled tokens", count(results, "labelled_tokens")}) +
         row({"records", count(results, "records")});
}

LORA_INLINE std::string worst(const io::Json& results) {
  std::string text = "\n## Worst records\n";
  for (const io::Json& set : results.at("datasets")) {
    text += concat("\n", cell(set.at("name")), ":\n\n", head({"record", "loss", "perplexity", "labeled tokens"}));
    for (const io::Json& record : set.at("worst_records")) {
      const std::string words = record.at("text");
      text +=
          row({cell(record.at("where")) + (words.empty() ? "" : ": " + cell(words)), fixed(number(record, "loss"), 4),
               perplexity(number(record, "perplexity")), count(record, "labelled_tokens")});
    }
  }
  return text;
}

}  // namespace detail

LORA_INLINE std::string evaluation_report(const io::Json& results) {
  using namespace detail;
  std::string text = "# Evaluation\n\n";
  const auto line = [&](std::string_view label, const io::Json& value) {
    if (!value.is_null()) text += concat("- ", label, ": ", cell(value.get<std::string>()), "\n");
  };
  line("model", results.at("model_name_or_path"));
  line("adapter", results.at("adapter_name_or_path"));
  for (const io::Json& file : results.at("dataset")) line("data", file);
  line("template", results.at("template"));
  const auto fact = [&](const char* name) { return results.at(name).get<std::string>(); };
  text += concat("- computed in ", fact("dtype"), " on ", fact("device"), "\n- lora ", fact("version"), ", ",
                 fact("time"), "\n");
  text += measures(results);
  text += concat("\nLoss and perplexity are over all labeled tokens; records longer than ",
                 count(results, "cutoff_len"), " tokens are read in windows of that length, each half a window on.\n");
  if (results.at("datasets").size() > 1) text += data_sets(results);
  if (results.contains("base")) text += against_base(results);
  if (const io::Json* comparisons = io::json_find(results, "comparisons"))
    for (const io::Json& comparison : *comparisons) text += against_earlier(comparison, results);
  return text + worst(results);
}

}  // namespace lora::report
