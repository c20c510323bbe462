#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "lora/core/format.hpp"
#include "lora/core/printable.hpp"
#include "lora/core/scalar.hpp"
#include "lora/io/formats/json.hpp"

namespace lora::doctor {

/// What a report begins with, which tells that it is one.
constexpr std::string_view report_head = "# lora doctor's report on ";

/// What came of a check.
enum class State {
  ok,
  too_far,  ///< the result is not what it should be
  failed    ///< there is none
};

constexpr std::string_view name_of(State state) {
  constexpr std::string_view names[] = {"ok", "too far", "failed"};
  return names[static_cast<std::size_t>(state)];
}

/// An output of a kernel beside the same in double.
struct KernelRow {
  std::string family, kernel, type, output;
  State state = State::ok;
  double error = 0, units = 0, bound = 0;
  std::string words{};  ///< what is wrong
};

/// Steps of a training on the device and on the processors.
struct TrainingRow {
  std::string type;
  State state = State::ok;
  std::vector<double> losses{}, norms{};
  double loss_difference = 0, norm_difference = 0;  ///< the largest, relative
  double loss_bound = 0, norm_bound = 0;
  Index overflows = 0;  ///< steps that were done again with half the loss scale
  double tokens_per_second = 0;
  double peak_bytes = 0;
  std::string words{};
};

/// How long a kernel takes at a larger shape.
struct TimeRow {
  std::string family, kernel, type;
  double seconds = 0;  ///< the median
  double flops = 0, bytes = 0;
  std::string words{};  ///< why there is no time
};

/// A question that only the device can answer.
struct Fact {
  std::string what, found;
};

/// All that is found out of a device.
struct Report {
  std::string device;
  std::string unfinished{};      ///< what was under way when this was written; empty: all is done
  std::vector<Fact> findings{};  ///< what is there, without trying it
  std::vector<Fact> host{}, facts{}, environment{};
  std::vector<KernelRow> kernels{};
  TrainingRow reference{};  ///< on the processors in float32
  std::vector<TrainingRow> training{};
  std::string timed{};  ///< the shape
  std::vector<TimeRow> times{};
  std::vector<Fact> speeds{};
  std::vector<std::string> problems{};  ///< what kept a part from being done

  std::size_t checks() const { return kernels.size() + training.size() + times.size() + problems.size(); }
  std::size_t bad() const {
    const auto is_bad = [](const auto& row) { return row.state != State::ok; };
    const auto has_none = [](const TimeRow& row) { return !row.words.empty(); };
    return static_cast<std::size_t>(std::count_if(kernels.begin(), kernels.end(), is_bad) +
                                    std::count_if(training.begin(), training.end(), is_bad) +
                                    std::count_if(times.begin(), times.end(), has_none)) +
           problems.size();
  }
  bool good() const { return bad() == 0 && unfinished.empty(); }
};

/// "214 checks, all ok"
inline std::string verdict(const Report& report) {
  if (!report.unfinished.empty())
    return concat("not finished: ended during ", report.unfinished, "; ", report.checks(), " checks until then, ",
                  report.bad(), " not ok");
  if (report.bad() == 0) return concat(report.checks(), " checks, all ok");
  return concat(report.bad(), " of ", report.checks(), " checks are not ok");
}

namespace detail {

/// Text of any origin in a cell of a table.
inline std::string cell(std::string_view text) {
  std::string safe;
  for (const char c : printable(text)) {
    if (c == '|') safe += '\\';
    safe += c;
  }
  return safe;
}

inline std::string row(const std::vector<std::string>& cells) {
  std::string text = "|";
  for (const std::string& one : cells) text += concat(" ", one, one.empty() ? "|" : " |");
  return text + "\n";
}
inline std::string head(const std::vector<std::string>& cells, std::size_t texts) {
  std::string text = row(cells) + "|";
  for (std::size_t i = 0; i < cells.size(); ++i) text += i < texts || cells[i].empty() ? "---|" : "---:|";
  return text + "\n";
}

inline std::string facts(std::string_view title, const std::vector<Fact>& list) {
  if (list.empty()) return {};
  std::string text = concat("\n## ", title, "\n\n", head({"", ""}, 2));
  for (const Fact& fact : list) text += row({cell(fact.what), cell(fact.found)});
  return text;
}

inline std::string kernel_line(const KernelRow& one) {
  const bool none = one.state == State::failed;
  const std::string state = one.state == State::ok ? "ok" : concat("**", name_of(one.state), "**");
  return row({one.family, cell(one.kernel), cell(one.output), none ? "" : significant(one.error, 2),
              none ? "" : significant(one.units, 3), none ? "" : significant(one.bound, 3),
              one.words.empty() ? state : concat(state, ": ", cell(one.words))});
}

inline std::string kernels(const Report& report) {
  std::string text, type;
  for (const KernelRow& one : report.kernels) {
    if (one.type != type) {
      text += concat("\n## Kernels in ", one.type, "\n\n",
                     head({"family", "kernel", "output", "error", "roundings", "at most", ""}, 3));
      type = one.type;
    }
    text += kernel_line(one);
  }
  if (!text.empty())
    text = concat(
        "\nEach kernel is compared with the processors' in double. The error is the largest difference over the "
        "largest "
        "magnitude; the same in roundings of the type, or of float32 for what is formed in it; and how many there may "
        "be.\n",
        text);
  return text;
}

inline std::string training(const Report& report) {
  if (report.training.empty()) return {};
  std::string text =
      "\n## Training\n\nA tiny random model, from the same weights and on the same tokens as on the "
      "processors in float32.\n\n" +
      head({"type", "loss differs by", "at most", "norm differs by", "at most", "overflows", "tokens/s", "memory taken",
            ""},
           1);
  for (const TrainingRow& one : report.training) {
    const std::string state = one.state == State::ok ? "ok" : concat("**", name_of(one.state), "**");
    text += row({one.type, significant(one.loss_difference, 2), significant(one.loss_bound, 2),
                 significant(one.norm_difference, 2), significant(one.norm_bound, 2), concat(one.overflows),
                 fixed(one.tokens_per_second, 0), size_text(one.peak_bytes),
                 one.words.empty() ? state : concat(state, ": ", cell(one.words))});
  }
  std::vector<std::string> names = {"step", "loss on the processors"};
  for (const TrainingRow& one : report.training) names.push_back("in " + one.type);
  names.push_back("norm on the processors");
  for (const TrainingRow& one : report.training) names.push_back("in " + one.type);
  text += "\n" + head(names, 0);
  const auto number = [](const std::vector<double>& values, std::size_t i) {
    return i < values.size() ? significant(values[i], 7) : std::string();
  };
  for (std::size_t i = 0; i < report.reference.losses.size(); ++i) {
    std::vector<std::string> cells = {concat(i + 1), number(report.reference.losses, i)};
    for (const TrainingRow& one : report.training) cells.push_back(number(one.losses, i));
    cells.push_back(number(report.reference.norms, i));
    for (const TrainingRow& one : report.training) cells.push_back(number(one.norms, i));
    text += row(cells);
  }
  return text;
}

inline std::string times(const Report& report) {
  if (report.times.empty()) return {};
  std::string text = concat("\n## Times\n\n", cell(report.timed), "\n\n",
                            head({"family", "kernel", "type", "median ms", "GFLOP/s", "GB/s"}, 3));
  for (const TimeRow& one : report.times) {
    if (!one.words.empty()) {
      text += row({one.family, cell(one.kernel), one.type, "**failed**: " + cell(one.words), "", ""});
      continue;
    }
    const auto rate = [&](double count) {
      return count > 0 && one.seconds > 0 ? significant(count / one.seconds / 1e9, 3) : std::string();
    };
    text += row(
        {one.family, cell(one.kernel), one.type, significant(one.seconds * 1e3, 3), rate(one.flops), rate(one.bytes)});
  }
  return text;
}

}  // namespace detail

/// The verdict, and a line for each check that is not ok.
inline std::string summary(const Report& report) {
  std::string text = verdict(report) + "\n";
  for (const std::string& problem : report.problems) text += concat("- ", printable(problem), "\n");
  for (const KernelRow& one : report.kernels)
    if (one.state != State::ok)
      text += concat("- ", one.family, ", ", one.kernel, one.output.empty() ? "" : ", " + one.output, ", in ", one.type,
                     ": ", name_of(one.state), ": ", printable(one.words), "\n");
  for (const TrainingRow& one : report.training)
    if (one.state != State::ok)
      text += concat("- training in ", one.type, ": ", name_of(one.state), ": ", printable(one.words), "\n");
  for (const TimeRow& one : report.times)
    if (!one.words.empty())
      text += concat("- time of ", one.family, ", ", one.kernel, ", in ", one.type, ": ", printable(one.words), "\n");
  return text;
}

/// As Markdown for people.
inline std::string to_markdown(const Report& report) {
  const std::string lines = summary(report);
  const auto end = lines.find('\n') + 1;
  std::string text = concat(report_head, detail::cell(report.device), ": ", std::string_view(lines).substr(0, end));
  if (end < lines.size()) text += concat("\n", std::string_view(lines).substr(end));
  text += detail::facts("Found", report.findings);
  text += detail::facts("Host", report.host);
  text += detail::facts("Device", report.facts);
  text += detail::training(report);
  text += detail::kernels(report);
  text += detail::times(report);
  text += detail::facts("Speed of copies and launches", report.speeds);
  text += detail::facts("Environment", report.environment);
  return text;
}

/// For programs.
inline io::Json to_json(const Report& report) {
  const auto facts = [](const std::vector<Fact>& list) {
    io::Json object = io::Json::object();
    for (const Fact& fact : list) object[fact.what] = fact.found;
    return object;
  };
  io::Json json = io::json_object({{"device", report.device}, {"good", report.good()}, {"verdict", verdict(report)}});
  json["problems"] = io::json_array(report.problems);
  json["host"] = facts(report.host);
  json["facts"] = facts(report.facts);
  json["environment"] = facts(report.environment);
  json["kernels"] = io::Json::array();
  for (const KernelRow& one : report.kernels)
    json["kernels"].push_back(io::json_object({{"family", one.family},
                                               {"kernel", one.kernel},
                                               {"type", one.type},
                                               {"output", one.output},
                                               {"state", std::string(name_of(one.state))},
                                               {"error", one.error},
                                               {"roundings", one.units},
                                               {"bound", one.bound},
                                               {"words", one.words}}));
  json["reference"] = io::json_object({{"losses", report.reference.losses}, {"norms", report.reference.norms}});
  json["training"] = io::Json::array();
  for (const TrainingRow& one : report.training)
    json["training"].push_back(io::json_object({{"type", one.type},
                                                {"state", std::string(name_of(one.state))},
                                                {"losses", one.losses},
                                                {"norms", one.norms},
                                                {"loss_difference", one.loss_difference},
                                                {"norm_difference", one.norm_difference},
                                                {"overflows", one.overflows},
                                                {"tokens_per_second", one.tokens_per_second},
                                                {"peak_bytes", one.peak_bytes},
                                                {"words", one.words}}));
  json["timed"] = report.timed;
  json["times"] = io::Json::array();
  for (const TimeRow& one : report.times)
    json["times"].push_back(io::json_object({{"family", one.family},
                                             {"kernel", one.kernel},
                                             {"type", one.type},
                                             {"seconds", one.seconds},
                                             {"flops", one.flops},
                                             {"bytes", one.bytes},
                                             {"words", one.words}}));
  json["speeds"] = facts(report.speeds);
  return json;
}

}  // namespace lora::doctor
