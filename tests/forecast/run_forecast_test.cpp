// Forecasts of whole runs: which steps are counted, what is decided about memory, and what a report says of it.

#include "lora/forecast/run_forecast.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lora/forecast/report.hpp"
#include "lora/instantiate.hpp"
#include "lora/settings/settings.hpp"
#include "support/message_of.hpp"
#include "support/random_gguf.hpp"
#include "support/random_model.hpp"
#include "support/temp_folder.hpp"

namespace run_forecast_test {

using namespace lora;
using namespace lora::forecast;
using D = cpu::Device;

namespace {

/// A device with rates that are easy to reckon with.
Target target() {
  Target target{.device = "a device"};
  D dev(1);
  target.machine = nn::machine_of(dev);
  target.rates = {.products = 1e9, .attention = 1e9, .moved = 1e9, .thin = 1e9, .decoded = 1e9, .link = 0};
  target.device_bytes = target.host_bytes = 0x1p30;
  return target;
}

struct Subject {
  test::TempFolder temp;
  settings::Config config;

  Subject() {
    test::write_random_model(temp / "model", {});
    config.model_name_or_path = (temp / "model").native();
    config.cutoff_len = 20;
  }
  RunForecast forecast(const Target& on = target()) const {
    const PlannedModel model = planned_model(config);
    return forecast_run<D, float>(on, blueprint_of(config, model.source, model.declared), nullptr, config);
  }
};

/// A file of records of so many tokens each.
std::string records_of(const test::TempFolder& temp, const std::vector<Index>& lengths) {
  std::string lines;
  for (const Index length : lengths) {
    std::vector<Index> ids(static_cast<std::size_t>(length), 3);
    lines += io::to_text(io::json_object({{"input_ids", ids}, {"labels", ids}}), -1) + "\n";
  }
  io::write_file(temp / "data.jsonl", std::string_view(lines));
  return (temp / "data.jsonl").native();
}

}  // namespace

TEST_CASE(
    "run forecast: without data a step's sequences have cutoff_len tokens each, in micro-batches as the keys say") {
  settings::Config config;
  config.cutoff_len = 30;
  config.per_device_train_batch_size = 3;
  config.gradient_accumulation_steps = 2;
  train::StepBatches batches = full_batches(config);
  CHECK(batches.sequences == 6);
  CHECK(batches.count == 1);
  REQUIRE(batches.batches.size() == 2);  // 3 sequences each, since the batch size was given
  for (const auto& batch : batches.batches) {
    CHECK(batch.rows == 90);
    CHECK(batch.tokens == 90);
    CHECK(batch.labeled == 87);
    CHECK(batch.pairs == 3 * 30 * 31 / 2);
    CHECK(batch.windowed.empty());
  }
  const std::vector<Index> windows{0, 7, 7};
  for (const auto& batch : full_batches(config, windows).batches) {
    CHECK(batch.pairs == 3 * 30 * 31 / 2);
    CHECK(batch.windowed == std::map<Index, double>{{7, 3 * (28 + 23 * 7)}});
  }
  config.max_tokens_per_micro_batch = 125;
  batches = full_batches(config);
  REQUIRE(batches.batches.size() == 2);
  CHECK(batches.batches[0].rows == 120);
  CHECK(batches.batches[1].rows == 60);
  config.max_tokens_per_micro_batch = 7;  // less than a sequence
  CHECK(full_batches(config).batches.size() == 6);
  // Of units none shares a micro-batch with another.
  const auto parts = [&](Index units) {
    config.step_units = units;
    std::vector<std::pair<Index, Index>> found;  // unit and rows
    for (const auto& batch : full_batches(config).batches) found.emplace_back(batch.unit, batch.rows);
    return found;
  };
  using Parts = std::vector<std::pair<Index, Index>>;
  config.max_tokens_per_micro_batch = 60;
  CHECK(parts(2) == Parts{{0, 60}, {0, 30}, {1, 60}, {1, 30}});
  CHECK(parts(4) == Parts{{0, 30}, {1, 60}, {2, 30}, {3, 60}});
  CHECK(parts(6) == Parts{{0, 30}, {1, 30}, {2, 30}, {3, 30}, {4, 30}, {5, 30}});
}

TEST_CASE("run forecast: micro-batches that no memory holds, and more than anyone waits for, are refused") {
  settings::Config config;
  const auto refused = [&] { return test::message_of<ConfigError>([&] { (void)full_batches(config); }); };
  const std::string nothing = "nothing was thrown";
  config.cutoff_len = Index{1} << 20;
  config.per_device_train_batch_size = 2048;
  config.gradient_accumulation_steps = 1;
  CHECK(refused() == nothing);
  config.per_device_train_batch_size = 2049;
  CHECK(refused() ==
        "key cutoff_len: a micro-batch of 2049 sequences of 1048576 tokens; allowed: at most 2147483648 tokens in one");
  config.max_tokens_per_micro_batch = Index{1} << 40;
  CHECK(refused() ==
        "key max_tokens_per_micro_batch: a micro-batch of 2049 sequences of 1048576 tokens; allowed: at most "
        "2147483648 tokens in one");
  config.max_tokens_per_micro_batch = 1;
  CHECK(refused() == nothing);
  config.cutoff_len = (Index{1} << 31) + 1;
  CHECK(refused() ==
        "key cutoff_len: a micro-batch of 1 sequence of 2147483649 tokens; allowed: at most 2147483648 tokens in one");
  config.cutoff_len = 10;
  config.per_device_train_batch_size = 1000;
  config.gradient_accumulation_steps = 10'001;
  CHECK(refused() ==
        "key gradient_accumulation_steps: a step of 10001000 sequences, 1 in a micro-batch; allowed: at most 10000000 "
        "micro-batches");
}

TEST_CASE("run forecast: of each stage the first eight steps are looked at, wherever it begins") {
  Subject s;
  s.config.dataset = {data::DataFile{records_of(s.temp, {10, 20, 5, 5, 40})}};
  s.config.per_device_train_batch_size = 1;
  s.config.gradient_accumulation_steps = 1;
  s.config.stages.resize(3);
  s.config.stages[0].until_step = 10;
  s.config.stages[1].until_step = 13;
  s.config.stages[2].until_step = 40;
  const cpu::Threads threads(1);
  train::Prepared run(threads, s.config, planned_model(s.config).source, {});
  const Index steps[] = {8, 3, 8};
  for (std::size_t stage = 0; stage < 3; ++stage) {
    const auto batches = train::first_batches(run.plan, stage, run.data.train(), run.config, {});
    CHECK(batches.count == steps[stage]);
    CHECK(batches.sequences == steps[stage]);
  }
}

TEST_CASE("run forecast: with data its steps are the run's own, and their mean counts") {
  Subject s;
  s.config.dataset = {data::DataFile{records_of(s.temp, {10, 20, 5, 5, 40})}};
  s.config.cutoff_len = 25;
  s.config.shuffle = false;
  s.config.per_device_train_batch_size = 1;
  s.config.gradient_accumulation_steps = 2;
  s.config.max_steps = 3;
  s.config.max_tokens_per_micro_batch = 1;  // each sequence alone
  const cpu::Threads threads(1);
  train::Prepared run(threads, s.config, planned_model(s.config).source, {});
  const std::vector<Index> windows{0, 4, 4, 12};
  const train::StepBatches batches = train::first_batches(run.plan, 0, run.data.train(), run.config, windows);
  CHECK(batches.count == 3);
  CHECK(batches.sequences == 5);  // the last step of an epoch has what is left
  Index rows = 0;
  double pairs = 0;
  std::map<Index, double> in_windows;
  for (const auto& batch : batches.batches) {
    rows += batch.rows;
    pairs += batch.pairs;
    CHECK(batch.windowed.size() == 2);
    for (const auto& [window, seen] : batch.windowed) in_windows[window] += seen;
  }
  CHECK(rows == 10 + 20 + 5 + 5 + 25);
  CHECK(pairs == 55 + 210 + 15 + 15 + 325);
  CHECK(in_windows[4] == 5 * 10 + 4 * (6 + 16 + 1 + 1 + 21));
  CHECK(in_windows[12] == 55 + (78 + 8 * 12) + 15 + 15 + (78 + 13 * 12));
  const RunForecast forecast =
      forecast_run<D, float>(target(), blueprint_of(run.config, run.source, {}), &run, run.config);
  CHECK(forecast.step.sequences == doctest::Approx(5 / 3.0));
  CHECK(forecast.step.tokens == doctest::Approx(65 / 3.0));
  CHECK(forecast.step.micro_batches == doctest::Approx(5 / 3.0));
}

TEST_CASE("run forecast: the memory is what training plans, and whether it fits is asked of the device") {
  Subject s;
  const RunForecast forecast = s.forecast();
  REQUIRE(forecast.memory);
  CHECK(forecast.fits);
  CHECK(forecast.advice == "");
  Target small = target();
  small.device_bytes = forecast.memory->peak() - 1;
  CHECK_FALSE(s.forecast(small).fits);
  CHECK(s.forecast(small).advice.starts_with("it needs 0.0 GiB, but the device has 0.0 GiB"));
  small.held = 0x1p20;
  CHECK(s.forecast(small).memory->peak() == doctest::Approx(forecast.memory->peak() + 0x1p20));
  // Where a limit leaves room for some layers only, these are checkpointed, which takes time.
  s.config.gradient_checkpointing = true;
  const RunForecast all = s.forecast();
  s.config.gradient_checkpointing = false;
  CHECK(all.memory->recomputed == 2);
  CHECK(all.memory->peak() < forecast.memory->peak());
  CHECK(all.step.work.products > forecast.step.work.products);
  s.config.memory_limit_gib = (all.memory->peak() + 1) / 0x1p30;
  CHECK(s.forecast().memory->recomputed > 0);
  s.config.memory_limit_gib = 1e-6;
  const RunForecast none = s.forecast();
  CHECK_FALSE(none.memory);
  CHECK_FALSE(none.fits);
  CHECK(none.advice.starts_with("key memory_limit_gib: given 1e-06, but with every layer checkpointed"));
}

TEST_CASE("run forecast: a model needs no weights, and config.json says how they would be stored") {
  Subject s;
  CHECK_FALSE(planned_model(s.config).declared);
  std::filesystem::remove(s.temp / "model" / "model.safetensors");
  for (const auto& [field, value, dtype] :
       {std::tuple{"torch_dtype", "float16", DType::f16}, std::tuple{"dtype", "bfloat16", DType::bf16},
        std::tuple{"dtype", "float16", DType::f16}, std::tuple{"torch_dtype", "bfloat16", DType::bf16},
        std::tuple{"torch_dtype", "float32", DType::f32}, std::tuple{"other", "bfloat16", DType::f32}}) {
    io::Json json = test::config_json({});
    json[field] = value;
    io::write_json(s.temp / "model" / "config.json", json);
    const PlannedModel model = planned_model(s.config);
    CHECK(model.stored_dtype() == dtype);
    CHECK(blueprint_of(s.config, model.source, model.declared).stored(model::tensors_of(model.source.config())[0]) ==
          dtype);
  }
  // What newer versions of transformers say goes before what older ones did.
  io::Json both = test::config_json({});
  both["dtype"] = "float16";
  both["torch_dtype"] = "bfloat16";
  io::write_json(s.temp / "model" / "config.json", both);
  CHECK(planned_model(s.config).declared == DType::f16);
  CHECK(planned_model(s.config).source.path() == s.temp / "model");
  settings::Config preset;
  preset.model_preset = "qwen3-0.6b";
  CHECK(planned_model(preset).stored_dtype() == DType::bf16);
  CHECK(planned_model(preset).source.config().num_hidden_layers == 28);
}

TEST_CASE(
    "run forecast: a published shape is stored as it was published, and begins in float32 where it is trained from "
    "none") {
  settings::Config config;
  config.model_preset = "qwen3-0.6b";
  CHECK(planned_model(config).stored_dtype() == DType::bf16);
  config.train_from_scratch = true;
  CHECK(planned_model(config).stored_dtype() == DType::f32);
}

TEST_CASE("run forecast: layers that are streamed keep what fits on the device, two at the least") {
  Subject s;
  const PlannedModel model = planned_model(s.config);
  const model::Blueprint blueprint = blueprint_of(s.config, model.source, {});
  double layer = 0;
  for (const model::TensorInfo& info : model::tensors_of(blueprint.config))
    if (info.kind == model::TensorInfo::Kind::projection && info.layer == 0)
      layer += 4 * static_cast<double>(info.shape.count());
  s.config.offload = "params";
  const auto streaming = forecast::detail::streaming_of<D, float>(blueprint, s.config, 1, 0);
  CHECK(static_cast<double>(streaming->layers) == 2 * layer);
  CHECK(static_cast<double>(streaming->host) == 2 * layer);
  CHECK(static_cast<double>(streaming->device) == 2 * layer);
  CHECK(static_cast<double>(forecast::detail::streaming_of<D, float>(blueprint, s.config, 1, 9 * layer)->device) ==
        2 * layer);
}

TEST_CASE("run forecast: a report says it all in words and for scripts, and of several ways which to take") {
  Subject s;
  Target holding = target();
  holding.held = 0x1p24;  // which is part of the total
  Report report{.model = "a model",
                .device = "a device",
                .data = " of 20 tokens",
                .device_bytes = 0x1p30,
                .host_bytes = 0x1p30,
                .forecast = s.forecast(holding),
                .layers = 2};
  const std::string text = text_of(report);
  CAPTURE(text);
  CHECK(text.starts_with(
      "model    a model\ndevice   a device\nranks    1, which holds all of it\nstep     8 sequences of 20 "));
  CHECK(text.find("tokens, 160 tokens in 1 micro-batch; ") != text.npos);
  CHECK(text.find("\nfits     yes, in 1.0 GiB\n") != text.npos);
  const io::Json json = json_of(report);
  CHECK(json.at("fits") == true);
  CHECK(json.at("step").at("tokens") == 160);
  CHECK(json.at("step").at("sequences") == 8);
  CHECK(json.at("step").at("flops") == report.forecast.step.work.flops());
  const io::Json& memory = json.at("ranks")[0].at("device_gib");
  double sum = 0;
  for (const char* part : {"weights", "trained", "saved", "workspace", "communication"})
    sum += memory.at(part).get<double>();
  CHECK(std::fabs(sum - memory.at("total").get<double>()) < 3e-4);
  CHECK(json.at("advice").empty());

  const model::Blueprint blueprint = blueprint_of(s.config, planned_model(s.config).source, DType::f32);
  auto ways = compare<D, float>(target(), blueprint, nullptr, s.config);
  REQUIRE(ways.size() == 2);  // 160 tokens fit into the smallest micro-batch, with checkpointing and without
  CHECK(ways[0].micro_batch_tokens == 512);
  CHECK_FALSE(ways[0].recomputes);
  CHECK(ways[1].recomputes);
  CHECK(fastest_that_fits(ways) == &ways[0]);
  CHECK(text_of(report, ways).find("\nthe fastest that fits: --max_tokens_per_micro_batch 512\n") != std::string::npos);
  CHECK(json_of(report, ways).at("strategies").size() == 2);
  // As fast within a hundredth: then the one that needs least.
  ways[1].forecast.step.time.seconds = 1.005 * ways[0].forecast.step.time.seconds;
  CHECK(fastest_that_fits(ways) == &ways[1]);
  ways[1].forecast.step.time.seconds = 1.02 * ways[0].forecast.step.time.seconds;
  CHECK(fastest_that_fits(ways) == &ways[0]);
  ways[0].forecast.fits = false;
  CHECK(text_of(report, ways).find("--max_tokens_per_micro_batch 512 --gradient_checkpointing\n") != std::string::npos);
  ways[1].forecast.fits = false;
  ways[1].forecast.advice = "it needs more";
  CHECK(fastest_that_fits(ways) == nullptr);
  CHECK(text_of(report, ways)
            .ends_with("\nnone fits; the one that needs least, --max_tokens_per_micro_batch 512 "
                       "--gradient_checkpointing: it needs more\n"));
}

TEST_CASE("run forecast: ways are micro-batches from 512 to 16384 tokens, without and with gradient checkpointing") {
  Subject s;
  s.config.cutoff_len = 512;
  s.config.per_device_train_batch_size = 8;
  s.config.gradient_accumulation_steps = 4;
  s.config.offload = "none";
  const model::Blueprint blueprint = blueprint_of(s.config, planned_model(s.config).source, DType::f32);
  const auto ways = compare<D, float>(target(), blueprint, nullptr, s.config);
  REQUIRE(ways.size() == 12);
  const Index tokens[] = {512, 1024, 2048, 4096, 8192, 16384};
  for (std::size_t i = 0; i < 12; ++i) {
    CHECK(ways[i].micro_batch_tokens == tokens[i % 6]);
    CHECK(ways[i].recomputes == (i >= 6));
    CHECK(ways[i].offload == "none");
    CHECK(ways[i].forecast.step.micro_batches == 32 * 512 / static_cast<double>(tokens[i % 6]));
    CHECK(ways[i].forecast.memory->recomputed == (i >= 6 ? 2 : 0));
  }
}

TEST_CASE(
    "run forecast: where gradients leave with each micro-batch, ways differ in its sequences, and so in what is sent") {
  Subject s;
  s.config.cutoff_len = 512;
  s.config.per_device_train_batch_size = 3;
  s.config.gradient_accumulation_steps = 4;
  s.config.ranks = s.config.step_units = 4;
  const model::Blueprint blueprint = blueprint_of(s.config, planned_model(s.config).source, DType::f32);
  Target four = target();
  four.devices = 4;
  four.rates.peer = 1e9;
  four.device_bytes = 0;  // so that all ways are tried
  const auto ways = compare<D, float>(four, blueprint, nullptr, s.config);
  const auto gradients = [](const Strategy& one) {
    for (const train::Traffic& traffic : one.forecast.traffic)
      if (traffic.what == "gradients") return traffic.sent;
    return 0.0;
  };
  for (const Index zero_stage : {1, 2, 3}) {
    CAPTURE(zero_stage);
    std::vector<const Strategy*> found;
    for (const Strategy& one : ways)
      if (one.zero_stage == zero_stage && !one.recomputes) found.push_back(&one);
    REQUIRE(found.size() == 5);  // 8,192 tokens are more than a rank has
    for (std::size_t i = 0; i < found.size(); ++i) {
      CAPTURE(i);
      const Index sequences[] = {1, 2, 4, 6, 12};  // divisors of the twelve that a rank has
      CHECK(found[i]->forecast.step.sequences == 48);
      if (zero_stage == 1) {
        CHECK_FALSE(found[i]->sequences);
        CHECK(gradients(*found[i]) == gradients(*found[0]));
        continue;
      }
      CHECK(found[i]->sequences == sequences[i]);
      CHECK(found[i]->accumulation == 12 / sequences[i]);
      CHECK(found[i]->micro_batch_tokens == 512 * sequences[i]);
      CHECK(found[i]->forecast.step.micro_batches == 48.0 / static_cast<double>(sequences[i]));
      // Parts are of whole blocks, and another rank may send most.
      CHECK(gradients(*found[i]) * static_cast<double>(sequences[i]) ==
            doctest::Approx(gradients(*found[0])).epsilon(0.15));
      if (i > 0) CHECK(found[i]->forecast.memory->peak() > found[i - 1]->forecast.memory->peak());
    }
  }
  Report report;
  report.forecast = ways.front().forecast;
  const auto shared = std::find_if(ways.begin(), ways.end(), [](const Strategy& one) { return one.sequences == 4; });
  CHECK(text_of(report, {*shared})
            .find("--per_device_train_batch_size 4 --gradient_accumulation_steps 3 --zero_stage "
                  "2: it needs ") != std::string::npos);
  const io::Json told = json_of(report, ways).at("strategies");
  for (std::size_t i = 0; i < ways.size(); ++i) {
    CHECK(told[i].contains("max_tokens_per_micro_batch") == (ways[i].zero_stage < 2));
    if (ways[i].zero_stage < 2) continue;
    CHECK(told[i].at("per_device_train_batch_size") == *ways[i].sequences);
    CHECK(told[i].at("gradient_accumulation_steps") == *ways[i].accumulation);
  }
  s.config.zero_stage = 2;
  s.config.stages.resize(1);  // which may have batches of its own
  CHECK(with_micro_batches(s.config, 2048, 512).per_device_train_batch_size == 3);
  CHECK(with_micro_batches(s.config, 2048, 512).max_tokens_per_micro_batch == 2048);
}

TEST_CASE("run forecast: it is of the device's memory, to the byte, and of no host's where there is none") {
  Subject s;
  const RunForecast forecast = s.forecast();
  Target exact = target();
  exact.device_bytes = forecast.memory->peak();
  exact.host_bytes = 0;
  CHECK(s.forecast(exact).fits);
  exact.device_bytes -= 1;
  CHECK_FALSE(s.forecast(exact).fits);
  CHECK(forecast.step.streamed == 0);
  CHECK(forecast.step.time.seconds > 0);
  CHECK(forecast.step.time.seconds == time_of(forecast.step.work, target().rates).seconds);
}

TEST_CASE("run forecast: of several stages the one whose steps take longest is told") {
  Subject s;
  s.config.dataset = {data::DataFile{records_of(s.temp, std::vector<Index>(12, 10))}};
  s.config.per_device_train_batch_size = 1;
  s.config.gradient_accumulation_steps = 1;
  s.config.stages.resize(3);
  s.config.stages[0].until_step = 2;
  s.config.stages[1].until_step = 4;
  s.config.stages[1].gradient_accumulation_steps = 3;
  s.config.stages[2].until_step = 6;
  s.config.stages[2].gradient_accumulation_steps = 2;
  const cpu::Threads threads(1);
  train::Prepared run(threads, s.config, planned_model(s.config).source, {});
  const RunForecast forecast =
      forecast_run<D, float>(target(), blueprint_of(run.config, run.source, {}), &run, run.config);
  CHECK(forecast.step.sequences == 3);
  CHECK(forecast.step.tokens == 30);
}

TEST_CASE("run forecast: of several stages the one with the largest peak decides, with what is held meanwhile") {
  std::vector<train::MemoryPlan> plans(3);
  plans[0].needs = {0, 8, 0};
  plans[1].needs = {0, 4, 0};
  plans[1].held = 6;
  plans[2].needs = {0, 9, 0};
  CHECK(&train::largest(plans) == &plans[1]);
  plans[2].held = 2;
  CHECK(&train::largest(plans) == &plans[2]);
}

TEST_CASE(
    "run forecast: the busiest of several ranks has the most tokens, or meets the others with the largest batches") {
  train::StepBatches batches{.sequences = 12, .count = 2};
  for (const auto& step : {std::vector<Index>{9, 1, 2, 8, 3, 7}, std::vector<Index>{1, 2, 3, 6, 5, 5}})
    for (std::size_t unit = 0; unit < step.size(); ++unit)
      batches.batches.push_back({.rows = step[unit], .unit = static_cast<Index>(unit)});
  const auto rows_of = [&](Index zero_stage, int ranks) {
    settings::Config config;
    config.zero_stage = zero_stage;
    config.step_units = 6;
    const train::StepBatches found = train::busiest(batches, config, ranks);
    CHECK(found.sequences == 12);
    CHECK(found.count == 2);
    std::vector<Index> rows;
    for (const auto& batch : found.batches) rows.push_back(batch.rows);
    return rows;
  };
  using Rows = std::vector<Index>;
  const Rows all = {9, 1, 2, 8, 3, 7, 1, 2, 3, 6, 5, 5};
  for (const Index zero_stage : {0, 1}) {
    CHECK(rows_of(zero_stage, 1) == all);
    CHECK(rows_of(zero_stage, 2) == Rows{8, 3, 7, 6, 5, 5});  // units 3, 4 and 5, whichever rounds they would be
    CHECK(rows_of(zero_stage, 3) == Rows{3, 7, 5, 5});
  }
  for (const Index zero_stage : {2, 3}) {
    CHECK(rows_of(zero_stage, 1) == all);
    CHECK(rows_of(zero_stage, 2) == Rows{9, 8, 7, 2, 6, 5});  // of units 0 and 1, 2 and 3, 4 and 5
    CHECK(rows_of(zero_stage, 4) == Rows{9, 7, 6, 5});        // of units 0 to 3, 4 and 5
  }
}

TEST_CASE("run forecast: a model with weights is opened, one in shards or of a file as well") {
  Subject s;
  std::filesystem::rename(s.temp / "model" / "model.safetensors",
                          s.temp / "model" / "model-00001-of-00001.safetensors");
  io::write_json(s.temp / "model" / "model.safetensors.index.json",
                 {{"metadata", io::Json::object()}, {"weight_map", [&] {
                                                       io::Json map = io::Json::object();
                                                       for (const auto& tensor : test::random_tensors({}))
                                                         map[tensor.name] = "model-00001-of-00001.safetensors";
                                                       return map;
                                                     }()}});
  CHECK_FALSE(planned_model(s.config).declared);
  CHECK_FALSE(planned_model(s.config).source.is_initial());
  // Weights in a file of their own have the type that they have, and so has a folder with them in one piece.
  test::write_gguf(s.temp / "model.gguf", {}, test::random_tensors({}), DType::bf16);
  settings::Config file;
  file.model_name_or_path = (s.temp / "model.gguf").native();
  CHECK_FALSE(planned_model(file).declared);
  CHECK(planned_model(file).source.path() == s.temp / "model.gguf");
  s.config.train_from_scratch = true;
  CHECK(planned_model(s.config).declared == DType::f32);
  CHECK(planned_model(s.config).source.is_initial());
  std::filesystem::remove_all(s.temp / "model");
  io::create_folders(s.temp / "model");
  s.config.train_from_scratch = false;
  CHECK_THROWS_AS(planned_model(s.config), Error);
}

TEST_CASE("run forecast: streamed layers have room for as many as fit, and the device no less than two") {
  test::TempFolder temp;
  test::RandomModel shape;
  shape.layers = 5;
  test::write_random_model(temp / "model", shape);
  settings::Config config;
  config.model_name_or_path = (temp / "model").native();
  const PlannedModel model = planned_model(config);
  const model::Blueprint blueprint = blueprint_of(config, model.source, {});
  config.offload = "params";
  const auto whole = forecast::detail::streaming_of<D, float>(blueprint, config, 1, 0);
  const double layer = static_cast<double>(whole->layers) / 5;
  for (const auto& one : {std::pair(0.0, 2), std::pair(2.9, 2), std::pair(3.0, 3), std::pair(4.99, 4),
                          std::pair(5.0, 5), std::pair(50.0, 5)}) {
    const auto streaming = forecast::detail::streaming_of<D, float>(blueprint, config, 1, one.first * layer);
    CHECK(static_cast<double>(streaming->device) == one.second * layer);
    CHECK(streaming->layers == whole->layers);
    CHECK(streaming->host == whole->layers);
  }
  // Shared out by ranks: two whole layers, and of each a part, which lies there or on the host.
  config.zero_stage = 3;
  const std::size_t each = whole->layers / 5, own = 5 * model::shard_size(each, 2, 3);
  CHECK(own >= whole->layers / 3);
  CHECK(own < whole->layers / 3 + 5 * 512);
  const auto on_host = forecast::detail::streaming_of<D, float>(blueprint, config, 3, 1e12);
  CHECK(on_host->from == model::WeightPlaces::From::ranks);
  CHECK(on_host->device == 2 * each);
  CHECK(on_host->host == own);
  config.offload = "none";
  const auto on_device = forecast::detail::streaming_of<D, float>(blueprint, config, 3, 1e12);
  CHECK(on_device->device == 2 * each + own);
  CHECK(on_device->host == 0);
}

TEST_CASE("run forecast: numbers that are measured with repeat, lie in their range, and are a key's own") {
  D dev(1);
  constexpr std::size_t period = 65521;
  const auto values = [&](std::uint64_t key, double scale) {
    return to_host(dev, random_tensor<float>(dev, 2, 40000, key, scale).view());
  };
  const std::vector<float> one = values(1, 1), half = values(1, 0.5);
  REQUIRE(one.size() == 80000);
  for (std::size_t i = period; i < one.size(); ++i) REQUIRE(one[i] == one[i - period]);
  const auto range = std::minmax_element(one.begin(), one.end());
  CHECK(*range.first >= -1);
  CHECK(*range.first < -0.99f);
  CHECK(*range.second <= 1);
  CHECK(*range.second > 0.99f);
  for (std::size_t i = 0; i < 100; ++i) CHECK(half[i] == 0.5f * one[i]);
  CHECK(values(2, 1) != one);
  int calls = 0;
  CHECK(fastest(3, [&] { ++calls; }) < 1);
  CHECK(calls == 4);
}

}  // namespace run_forecast_test
