#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/config.hpp"
#include "lora/core/error.hpp"
#include "lora/core/format.hpp"
#include "lora/io/files/file.hpp"
#include "lora/io/files/read_file.hpp"
#include "lora/report/chart.hpp"
#include "lora/report/page.hpp"

namespace lora::report {

namespace detail {

constexpr std::string_view page_style =
    ":root{color-scheme:light dark;--paper:#fff;--ink:#1f2328;--line:#d0d7de;--soft:#f6f8fa}"
    "@media (prefers-color-scheme:dark){:root{--paper:#0d1117;--ink:#d1d7e0;--line:#3d444d;--soft:#151b23}}"
    "*{box-sizing:border-box}body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);"
    "max-width:1360px;margin:0 auto;padding:16px}h1{font-size:1.5em;overflow-wrap:anywhere}h2{font-size:1.2em;"
    "margin-top:1.6em}.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,520px),1fr));gap:16px}"
    ".wide{overflow-x:auto}table{border-collapse:collapse;font-size:.93em}td,th{border:1px solid var(--line);"
    "padding:3px "
    "9px;text-align:left}td.n,th.n{text-align:right;white-space:nowrap}td.v{overflow-wrap:anywhere;white-space:pre-"
    "wrap}"
    "th{background:var(--soft)}pre{background:var(--soft);padding:10px;overflow-x:auto;white-space:pre-wrap;"
    "overflow-wrap:anywhere}"
    "@media print{.charts{grid-template-columns:1fr 1fr}details{display:block}svg{break-inside:avoid}}";

inline std::string value_text(const io::Json* value) {
  if (value == nullptr || value->is_null()) return "";
  return value->is_string() ? value->get<std::string>() : io::to_text(*value, -1);
}

struct Table {
  /// Numbers stand on the right with six digits; what the file has is told where one points at them.
  enum class Cells { words, numbers };

  std::string rows;

  void add_head(const std::vector<std::string>& cells, Cells kind) {
    rows += "<tr>";
    for (std::size_t i = 0; i < cells.size(); ++i)
      rows += concat(kind == Cells::numbers && i > 0 ? "<th class=\"n\">" : "<th>", escaped(cells[i]), "</th>");
    rows += "</tr>\n";
  }
  void add(const std::vector<const io::Json*>& cells, const std::string& first = {}) {
    rows += concat("<tr>", first.empty() ? "" : "<td>" + escaped(first) + "</td>");
    for (const io::Json* cell : cells) {
      const std::string whole = value_text(cell);
      if (cell != nullptr && cell->is_number_float())
        rows += concat("<td class=\"n\" title=\"", whole, "\">", significant(cell->get<double>(), 6), "</td>");
      else
        rows +=
            concat("<td class=\"", cell != nullptr && cell->is_number() ? "n" : "v", "\">", escaped(whole), "</td>");
    }
    rows += "</tr>\n";
  }
  std::string text() const { return rows.empty() ? "" : "<div class=\"wide\"><table>\n" + rows + "</table></div>\n"; }
};

/// Fields of files with their titles.
using Fields = std::vector<std::pair<std::string, std::string>>;

/// Those that any of `objects` has.
inline Fields present(const Fields& fields, const std::vector<const io::Json*>& objects) {
  Fields found;
  for (const auto& field : fields)
    if (std::any_of(objects.begin(), objects.end(),
                    [&](const io::Json* object) { return object->is_object() && object->contains(field.first); }))
      found.push_back(field);
  return found;
}

/// A table of objects, a row each. `names`: of the rows; or none.
inline std::string table_of(const Fields& all, const std::vector<const io::Json*>& objects,
                            const std::vector<std::string>& names) {
  const Fields fields = present(all, objects);
  if (fields.empty()) return "";
  Table table;
  std::vector<std::string> head;
  if (!names.empty()) head.emplace_back("run");
  for (const auto& field : fields) head.push_back(field.second);
  table.add_head(head, Table::Cells::numbers);
  for (std::size_t i = 0; i < objects.size(); ++i) {
    std::vector<const io::Json*> cells;
    for (const auto& field : fields)
      cells.push_back(objects[i]->is_object() ? io::json_find(*objects[i], field.first) : nullptr);
    table.add(cells, names.empty() ? "" : names[i]);
  }
  return table.text();
}

/// A curve with its mean over some hundredths of the axis in front of it.
inline void add_smoothed(Chart& chart, const std::string& label, const std::vector<Point>& points, int color) {
  constexpr std::size_t few = 20;
  if (points.size() <= few) return chart.curves.push_back({label, points, color});
  chart.curves.push_back({label, points, color, true});
  chart.curves.push_back({label, smoothed(points, (points.back().x - points.front().x) / 60), color});
}

inline void add_losses(Chart& chart, const RunRecord& run, const std::string& prefix, int color,
                       int color_of_evaluation) {
  if (!run.curve("loss").empty()) add_smoothed(chart, prefix + "training", run.curve("loss"), color);
  if (const auto& evaluated = run.curve("eval_loss"); !evaluated.empty())
    chart.curves.push_back({prefix + "evaluation", evaluated, color_of_evaluation, false, true});
}

inline std::string losses_of(const std::vector<RunRecord>& runs) {
  Chart chart{"loss by step", {}};
  if (runs.size() == 1) add_losses(chart, runs[0], "", 0, 1);
  for (std::size_t i = 0; runs.size() > 1 && i < runs.size(); ++i)
    add_losses(chart, runs[i], runs[i].name + ", ", static_cast<int>(i), static_cast<int>(i) + colors);
  return chart.curves.empty() ? "" : "<div>" + svg_of(chart) + "</div>\n";
}

/// A chart of a field of the log; nothing where no run has it.
inline std::string chart_of(const std::vector<RunRecord>& runs, const std::string& title, std::string_view field,
                            bool smooth) {
  Chart chart{title, {}};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto& points = runs[i].curve(field);
    if (points.empty()) continue;
    const std::string label = runs.size() > 1 ? runs[i].name : "";
    if (smooth) add_smoothed(chart, label, points, static_cast<int>(i));
    if (!smooth) chart.curves.push_back({label, points, static_cast<int>(i)});
  }
  return chart.curves.empty() ? "" : "<div>" + svg_of(chart) + "</div>\n";
}

inline std::string scores_of(const std::vector<RunRecord>& runs) {
  std::vector<const io::Json*> metrics;
  std::vector<std::string> names;
  for (const RunRecord& run : runs) {
    metrics.push_back(&run.metrics);
    names.push_back(run.name);
  }
  const std::string table = table_of({{"steps", "steps"},
                                      {"train_loss", "last loss"},
                                      {"mean_train_loss", "mean loss"},
                                      {"eval_loss", "evaluation loss"},
                                      {"best_eval_loss", "best evaluation loss"},
                                      {"best_step", "at step"},
                                      {"final_model_step", "final_model's step"},
                                      {"ended_early", "ended early"},
                                      {"total_tokens", "tokens"},
                                      {"computed_tokens", "of them computed"},
                                      {"tokens_per_second", "tokens/s"},
                                      {"peak_memory_gib", "peak GiB"},
                                      {"seconds", "seconds"}},
                                     metrics, names);
  return table.empty() ? "<p>The training has not ended yet.</p>\n" : table;
}

inline std::string evaluations_of(const std::vector<RunRecord>& runs) {
  std::vector<const io::Json*> lines;
  std::vector<std::string> names;
  for (const RunRecord& run : runs)
    for (const io::Json& line : run.evaluations) {
      lines.push_back(&line);
      if (runs.size() > 1) names.push_back(run.name);
    }
  const std::string table = table_of({{"step", "step"},
                                      {"eval_loss", "loss"},
                                      {"eval_perplexity", "perplexity"},
                                      {"eval_token_accuracy", "token accuracy"},
                                      {"eval_exact_match", "exact match"},
                                      {"eval_rouge_l", "ROUGE-L"}},
                                     lines, names);
  return table.empty() ? "" : "<h2>Evaluations</h2>\n" + table;
}

/// A member of an object that is a list of objects; null where there is none, or what is there is something else.
inline const io::Json* list_in(const io::Json& object, std::string_view name) {
  const io::Json* const list = object.is_object() ? io::json_find(object, name) : nullptr;
  const bool usable = list != nullptr && list->is_array() && !list->empty() &&
                      std::all_of(list->begin(), list->end(), [](const io::Json& one) { return one.is_object(); });
  return usable ? list : nullptr;
}

inline double number_in(const io::Json& object, std::string_view name) {
  const io::Json* const number = io::json_find(object, name);
  return number != nullptr && number->is_number() ? number->get<double>() : 0;
}

/// Records of each class that a curriculum's stages have drawn.
inline Bars curriculum_of(const io::Json& stages) {
  constexpr std::size_t most = 60;  // rows
  Bars bars{"records by label, as counted", {}};
  std::vector<std::string> labels;
  for (const io::Json& stage : stages)
    if (const io::Json* const counts = io::json_find(stage, "counts"); counts != nullptr && counts->is_object())
      for (const auto& [label, count] : counts->items())
        if (std::find(labels.begin(), labels.end(), label) == labels.end()) labels.push_back(label);
  for (std::size_t i = 0; i < stages.size() && i < most; ++i) {
    const io::Json* const counts = io::json_find(stages[i], "counts");
    Bars::Row row{concat("steps ", significant(number_in(stages[i], "from_step") + 1, 12), " to ",
                         significant(number_in(stages[i], "to_step"), 12)),
                  {}};
    for (const std::string& label : labels)
      row.parts.push_back({label, counts != nullptr && counts->is_object() ? number_in(*counts, label) : 0});
    bars.rows.push_back(std::move(row));
  }
  return bars;
}

/// Records of each file.
inline Bars files_of(const io::Json& files) {
  Bars::Row row{"all steps", {}};
  for (const io::Json& file : files)
    row.parts.push_back({value_text(io::json_find(file, "name")), number_in(file, "records")});
  return {"records by file, as counted", {std::move(row)}};
}

/// What was drawn of each class and each file, as pictures with the counts behind them.
inline std::string draws_of(const RunRecord& run) {
  std::string text;
  const auto add = [&](std::string_view field, std::string_view title, Bars (*bars_of)(const io::Json&)) {
    if (const io::Json* const draws = list_in(run.metrics, field))
      text += concat("<h2>", title, "</h2>\n<div>", svg_of(bars_of(*draws)),
                     "</div>\n<details><summary>Counts</summary><pre>", escaped(io::to_text(*draws, 2)),
                     "</pre></details>\n");
  };
  add("curriculum", "Curriculum", curriculum_of);
  add("datasets", "Files", files_of);
  return text;
}

/// Answers that evaluations have generated: of the first and of the last evaluation that has any, a record a row.
inline std::string samples_of(const RunRecord& run) {
  const io::Json *first = nullptr, *last = nullptr;
  for (const io::Json& evaluation : run.evaluations) {
    if (list_in(evaluation, "eval_samples") == nullptr) continue;
    if (first == nullptr) first = &evaluation;
    last = &evaluation;
  }
  if (first == nullptr) return "";
  const auto of_step = [](const io::Json& evaluation) {
    return concat("answer after step ", significant(number_in(evaluation, "step"), 12));
  };
  std::vector<std::string> head{"prompt", "in the data"};
  head.push_back(of_step(*first));
  if (last != first) head.push_back(of_step(*last));
  Table table;
  table.add_head(head, Table::Cells::words);
  const io::Json &before = *list_in(*first, "eval_samples"), &after = *list_in(*last, "eval_samples");
  for (std::size_t i = 0; i < before.size(); ++i) {
    std::vector<const io::Json*> cells;
    for (const char* field : {"prompt", "label", "predict"}) cells.push_back(io::json_find(before[i], field));
    if (last != first) cells.push_back(i < after.size() ? io::json_find(after[i], "predict") : nullptr);
    table.add(cells);
  }
  return "<h2>Samples</h2>\n" + table.text();
}

/// Keys whose values differ: of one run from the defaults, of several among them.
inline std::string settings_of(const std::vector<RunRecord>& runs, const io::Json& defaults) {
  Table table;
  std::vector<std::string> head{"key"};
  for (const RunRecord& run : runs) head.push_back(runs.size() > 1 ? run.name : "value");
  table.add_head(head, Table::Cells::words);
  std::vector<std::string> keys;
  for (const RunRecord& run : runs)
    for (const auto& [key, value] : run.settings.items())
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  for (const std::string& key : keys) {
    std::vector<const io::Json*> cells;
    for (const RunRecord& run : runs) cells.push_back(io::json_find(run.settings, key));
    const std::string usual = runs.size() > 1 ? value_text(cells[0]) : value_text(io::json_find(defaults, key));
    if (std::any_of(cells.begin(), cells.end(), [&](const io::Json* cell) { return value_text(cell) != usual; }))
      table.add(cells, key);
  }
  return concat("<h2>", runs.size() > 1 ? "Settings that differ" : "Settings that are not the defaults", "</h2>\n") +
         table.text();
}

}  // namespace detail

LORA_INLINE std::string page_of(const std::vector<RunRecord>& runs, const io::Json& defaults) {
  using namespace detail;
  std::string title;
  for (const RunRecord& run : runs) title += (title.empty() ? "" : ", ") + run.name;
  std::string page = concat(page_begin, "<html lang=\"en\"><head><meta charset=\"utf-8\">\n",
                            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>");
  page += escaped(title) + "</title>\n<style>" + std::string(page_style) + std::string(chart_style()) +
          "</style></head><body>\n<h1>" + escaped(title) + "</h1>\n" + scores_of(runs) + "<div class=\"charts\">\n" +
          losses_of(runs) + chart_of(runs, "learning rate", "learning_rate", false) +
          chart_of(runs, "norm of the gradient", "grad_norm", true) +
          chart_of(runs, "tokens a second", "tokens_per_second", true) +
          chart_of(runs, "peak memory, GiB", "peak_memory_gib", false) + "</div>\n" + evaluations_of(runs);
  if (runs.size() == 1) page += samples_of(runs[0]) + draws_of(runs[0]);
  page += settings_of(runs, defaults);
  for (const RunRecord& run : runs) {
    const std::string of = runs.size() > 1 ? " of " + run.name : "";
    page += "<details><summary>All settings" + escaped(of) + "</summary><pre>" + escaped(io::to_text(run.settings, 2)) +
            "</pre></details>\n";
    if (!run.environment.empty())
      page += "<details><summary>Environment" + escaped(of) + "</summary><pre>" + escaped(run.environment) +
              "</pre></details>\n";
  }
  return page + "</body></html>\n";
}

LORA_INLINE std::string loss_picture(const RunRecord& run) {
  Chart chart{run.name + ": loss by step", {}};
  detail::add_losses(chart, run, "", 0, 1);
  return std::string(picture_begin) + svg_of(chart, true);
}

LORA_INLINE void write_page(const io::Path& path, std::string_view text) {
  if (io::is_file(path)) {
    io::FileWindow file(path);
    const std::string_view begin = file.look(page_begin.size());
    if (!begin.starts_with(page_begin) && !begin.starts_with(picture_begin))
      fail<IoError>(path.native(), " is there and no report of lora, so it is left alone; move it away");
  }
  io::write_file(path, text);
}

}  // namespace lora::report
