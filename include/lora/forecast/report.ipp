#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "lora/core/config.hpp"
#include "lora/core/format.hpp"
#include "lora/forecast/report.hpp"

namespace lora::forecast {

namespace detail {

inline double to_gib(double bytes) { return bytes / 0x1p30; }
inline std::string gib(double bytes) { return fixed(to_gib(bytes), 2); }

/// Bytes of a run by what they are for.
struct Parts {
  double weights = 0, trained = 0, saved = 0, workspace = 0, held = 0;
  double host_weights = 0, host_optimizer = 0, host_total = 0;
  double total = 0;

  explicit Parts(const train::MemoryPlan& plan)
      : weights(plan.needs.weights),
        trained(plan.trained.total()),
        saved(std::max(plan.before.activations, plan.needs.activations)),
        total(plan.peak()) {
    held = plan.held - trained;
    workspace = total - weights - trained - saved - held;
    if (plan.host) {
      host_weights = plan.host->weights;
      host_optimizer = plan.host->optimizer;
      host_total = plan.host->total();
    }
  }
};

inline std::string seconds(double value) { return concat(plain_number(value, 3), " s"); }

/// "1,234"
inline std::string thousands(double value) {
  std::string digits = fixed(value, 0);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

inline std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.resize(width, ' ');
  return text;
}
inline std::string right(const std::string& text, std::size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

inline io::Json rounded(double value, int digits) { return io::Json::parse(fixed(value, digits)); }

inline io::Json json_of(const StepForecast& step) {
  return io::json_object({{"sequences", rounded(step.sequences, 2)},
                          {"tokens", rounded(step.tokens, 1)},
                          {"computed_tokens", rounded(step.rows, 1)},
                          {"micro_batches", rounded(step.micro_batches, 2)},
                          {"flops", step.work.flops()},
                          {"seconds", rounded(step.time.seconds, 6)},
                          {"tokens_per_second", rounded(step.tokens / step.time.seconds, 1)},
                          {"communication_seconds", rounded(step.time.between_ranks, 6)},
                          {"hidden_seconds", rounded(step.time.hidden, 6)},
                          {"limited_by", std::string(step.time.limited_by)}});
}

inline io::Json advice_of(const RunForecast& forecast) {
  io::Json advice = io::Json::array();
  if (!forecast.advice.empty()) advice.push_back(forecast.advice);
  return advice;
}

}  // namespace detail

LORA_INLINE std::string text_of(const Report& report) {
  using namespace detail;
  const StepForecast& step = report.forecast.step;
  std::string page;
  const auto line = [&](const char* name, const std::string& text) { page += padded(name, 9) + text + "\n"; };
  line("model", report.model);
  line("device", report.device);
  line("ranks", report.ranks);
  line("step",
       concat(plain_number(step.sequences, 4), " sequences", report.data, ", ", thousands(step.tokens), " tokens",
              step.rows < step.tokens ? concat(", ", thousands(step.rows), " of them computed,") : "", " in ",
              plain_number(step.micro_batches, 3), step.micro_batches == 1 ? " micro-batch; " : " micro-batches; ",
              plain_number(step.work.flops() * 1e-12, 3), " TFLOP"));
  line("time", concat("about ", seconds(step.time.seconds), " a step, ", thousands(step.tokens / step.time.seconds),
                      " tokens/s; most of it goes to ", step.time.limited_by));
  double sent = 0;
  for (const train::Traffic& one : report.forecast.traffic) sent += one.sent;
  if (!report.forecast.traffic.empty()) {
    std::string parts;
    for (const train::Traffic& one : report.forecast.traffic)
      if (one.sent >= 0.01 * sent) parts += concat(parts.empty() ? "" : ", ", one.what, " ", gib(one.sent), " GiB");
    const std::string beside =
        step.time.hidden > 0 ? concat(", and ", seconds(step.time.hidden), " beside the work") : "";
    line("links", concat("about ", seconds(step.time.between_ranks), " of it", beside, "; a rank sends ", parts));
  }
  if (report.forecast.memory) {
    const train::MemoryPlan& plan = *report.forecast.memory;
    const Parts parts(plan);
    line("memory", report.has_host ? right("GiB  device", 24) + right("host", 9) : right("GiB", 24));
    const auto row = [&](const char* name, double device, double host) {
      if (device < 0x1p20 / 2 && host < 0x1p20 / 2) return;
      page += std::string(9, ' ') + padded(name, 14) + right(gib(device), 10) +
              (report.has_host && host > 0 ? right(gib(host), 9) : "") + "\n";
    };
    row("weights", parts.weights, parts.host_weights);
    row("what trains", parts.trained, parts.host_optimizer);
    row("saved", parts.saved, 0);
    row("workspace", parts.workspace, 0);
    row("program", parts.held, 0);
    row("communication", report.connected, 0);
    row("in all", parts.total + report.connected, parts.host_total);
    if (report.devices > 1)
      page += std::string(9, ' ') + concat("of each of ", report.devices, " ranks of a node",
                                           report.has_host ? "" : ", which share the weights' pages", "\n");
    if (plan.recomputed > 0)
      page += std::string(9, ' ') + concat("with gradient checkpointing on ", plan.recomputed, " of ", report.layers,
                                           report.layers == 1 ? " layer\n" : " layers\n");
  }
  if (report.forecast.fits) {
    line("fits", concat("yes, in ", fixed(to_gib(report.device_bytes), 1), " GiB"));
  } else {
    line("fits", "no: " + report.forecast.advice);
  }
  return page;
}

LORA_INLINE io::Json json_of(const Report& report, const std::vector<Strategy>& strategies) {
  using namespace detail;
  io::Json json = io::json_object({{"fits", report.forecast.fits},
                                   {"model", report.model},
                                   {"device", report.device},
                                   {"step", json_of(report.forecast.step)}});
  json["ranks"] = io::Json::array();
  if (report.forecast.memory) {
    const Parts parts(*report.forecast.memory);
    const auto number = [](double bytes) { return rounded(to_gib(bytes), 4); };
    for (int rank = 0; rank < report.devices * report.nodes; ++rank)
      json["ranks"].push_back(
          io::json_object({{"rank", rank},
                           {"device_gib", io::json_object({{"weights", number(parts.weights)},
                                                           {"trained", number(parts.trained)},
                                                           {"saved", number(parts.saved)},
                                                           {"workspace", number(parts.workspace + parts.held)},
                                                           {"communication", number(report.connected)},
                                                           {"total", number(parts.total + report.connected)}})},
                           {"host_gib", io::json_object({{"weights", number(parts.host_weights)},
                                                         {"optimizer", number(parts.host_optimizer)},
                                                         {"total", number(parts.host_total)}})},
                           {"checkpointed_layers", report.forecast.memory->recomputed}}));
  }
  json["communication"] = io::Json::array();
  for (const train::Traffic& one : report.forecast.traffic)
    json["communication"].push_back(io::json_object({{"what", std::string(one.what)},
                                                     {"collective", std::string(one.collective)},
                                                     {"calls_per_step", one.calls},
                                                     {"bytes_per_step", one.sent}}));
  json["advice"] = advice_of(report.forecast);
  if (strategies.empty()) return json;
  json["strategies"] = io::Json::array();
  for (const Strategy& strategy : strategies) {
    io::Json one = strategy.sequences ? io::json_object({{"per_device_train_batch_size", *strategy.sequences},
                                                         {"gradient_accumulation_steps", *strategy.accumulation}})
                                      : io::json_object({{"max_tokens_per_micro_batch", strategy.micro_batch_tokens}});
    one.update(io::json_object({{"gradient_checkpointing", strategy.recomputes},
                                {"offload", strategy.offload},
                                {"zero_stage", strategy.zero_stage},
                                {"fits", strategy.forecast.fits},
                                {"step", json_of(strategy.forecast.step)}}));
    if (strategy.forecast.memory)
      one["device_gib"] = rounded(to_gib(strategy.forecast.memory->peak() + report.connected), 4);
    one["advice"] = advice_of(strategy.forecast);
    json["strategies"].push_back(std::move(one));
  }
  return json;
}

LORA_INLINE settings::Config with_micro_batches(settings::Config config, Index tokens, Index longest) {
  const bool are_units = config.shares_gradients() && config.stages.empty();
  if (!are_units) {
    config.max_tokens_per_micro_batch = tokens;
    return config;
  }
  const Index own = config.train_batch_size() * config.gradient_accumulation_steps;
  Index together = std::clamp<Index>(tokens / std::max<Index>(longest, 1), 1, own);
  while (own % together != 0) --together;
  config.max_tokens_per_micro_batch.reset();
  config.per_device_train_batch_size = together;
  config.gradient_accumulation_steps = own / together;
  return config;
}

LORA_INLINE bool can_share(const settings::Config& config) {
  try {
    train::expect_units_of_a_micro_batch(config);
  } catch (const ConfigError&) {
    return false;
  }
  return true;
}

LORA_INLINE bool is_known(const std::vector<Strategy>& strategies, const Strategy& one) {
  return std::any_of(strategies.begin(), strategies.end(), [&](const Strategy& other) {
    const bool same_memory = one.forecast.memory && other.forecast.memory
                                 ? one.forecast.memory->peak() == other.forecast.memory->peak()
                                 : !one.forecast.memory && !other.forecast.memory;
    return same_memory && one.offload == other.offload && one.zero_stage == other.zero_stage &&
           one.recomputes == other.recomputes && one.forecast.step.time.seconds == other.forecast.step.time.seconds;
  });
}

LORA_INLINE const Strategy* fastest_that_fits(const std::vector<Strategy>& strategies) {
  double fastest = std::numeric_limits<double>::infinity();
  for (const Strategy& one : strategies)
    if (one.forecast.fits) fastest = std::min(fastest, one.forecast.step.time.seconds);
  const Strategy* best = nullptr;
  for (const Strategy& one : strategies) {
    if (!one.forecast.fits || one.forecast.step.time.seconds > 1.01 * fastest) continue;
    if (best == nullptr || one.forecast.memory->peak() < best->forecast.memory->peak()) best = &one;
  }
  return best;
}

LORA_INLINE std::string text_of(const Report& report, const std::vector<Strategy>& strategies) {
  using namespace detail;
  std::string page = padded("model", 9) + report.model + "\n" + padded("device", 9) + report.device + "\n\n";
  const bool shares = std::any_of(strategies.begin(), strategies.end(),
                                  [](const Strategy& one) { return !one.forecast.traffic.empty(); });
  const std::size_t widths[] = {22, 24, 11, 12, 12, 12, 10, 6};
  const auto row = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i)
      if (i != 3 || shares) line += i < 4 ? padded(cells[i], widths[i]) : right(cells[i], widths[i]);
    page += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  };
  row({"tokens a micro-batch", "gradient_checkpointing", "offload", "zero_stage", "s a step", "tokens/s", "GiB",
       "fits"});
  for (const Strategy& one : strategies) {
    const StepForecast& step = one.forecast.step;
    row({thousands(static_cast<double>(one.micro_batch_tokens)), one.recomputes ? "true" : "false", one.offload,
         concat(one.zero_stage), plain_number(step.time.seconds, 3), thousands(step.tokens / step.time.seconds),
         one.forecast.memory ? gib(one.forecast.memory->peak() + report.connected) : "",
         one.forecast.fits ? "yes" : "no"});
  }
  const auto keys_of = [](const Strategy& one) {
    return concat(one.sequences ? concat("--per_device_train_batch_size ", *one.sequences,
                                         " --gradient_accumulation_steps ", *one.accumulation)
                                : concat("--max_tokens_per_micro_batch ", one.micro_batch_tokens),
                  one.recomputes ? " --gradient_checkpointing" : "",
                  one.offload == "none" ? "" : " --offload " + one.offload,
                  one.zero_stage == 0 ? "" : concat(" --zero_stage ", one.zero_stage));
  };
  if (const Strategy* best = fastest_that_fits(strategies)) {
    page += "\nthe fastest that fits: " + keys_of(*best) + "\n";
  } else {
    const auto least = std::min_element(strategies.begin(), strategies.end(), [](const Strategy& a, const Strategy& b) {
      const auto bytes = [](const Strategy& one) { return one.forecast.memory ? one.forecast.memory->peak() : 1e300; };
      return bytes(a) < bytes(b);
    });
    page += "\nnone fits; the one that needs least, " + keys_of(*least) + ": " + least->forecast.advice + "\n";
  }
  return page;
}

}  // namespace lora::forecast
