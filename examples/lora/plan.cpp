#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "lora/core/format.hpp"
#include "lora/cpu/runtime/machine.hpp"
#include "lora/forecast/report.hpp"
#include "lora/inputs/device.hpp"
#include "lora/inputs/model_files.hpp"
#include "lora/instantiate.hpp"
#include "lora/io/formats/json.hpp"
#include "lora/run/environment.hpp"
#include "lora/settings/settings.hpp"
#include "processes.hpp"
#include "standard_output.hpp"

namespace {

using namespace lora;
using namespace lora::forecast;

/// "qwen2, 7.62 billion parameters in BF16; 20.2 million train"
std::string text_of_model(const settings::Config& config, const model::Blueprint& blueprint, DType stored) {
  double trained = 0;  // without what fills up the blocks of memory
  const nn::ParamTable params = blueprint.parameters();
  for (const nn::ParamTable::Storage& storage : params.storages())
    trained += static_cast<double>(storage.rows * storage.cols);
  const auto count = [](double number) {
    return number >= 1e9 ? concat(plain_number(number * 1e-9, 3), " billion")
                         : concat(plain_number(number * 1e-6, 3), " million");
  };
  return concat(config.model_name(), ", ", count(static_cast<double>(model::parameters_of(blueprint.config))),
                " parameters stored as ", name_of(stored), "; ", config.trains_model() ? "in full" : "LoRA", ", ",
                count(trained), " train");
}

/// "8 on 1 node: 8 x 1 x 8 = 64 sequences a step, zero_stage 2"
std::string text_of_ranks(const Target& target, const settings::Config& config) {
  const int ranks = target.ranks();
  return concat(ranks, " on ", target.nodes, target.nodes == 1 ? " node: " : " nodes: ", text_of_step(ranks, config));
}

template <AnyDevice D, class T>
int plan_on(const Target& target, const model::Blueprint& blueprint, DType stored, const train::Prepared* run,
            const settings::Config& given) {
  const settings::Config& config = run != nullptr ? run->config : given;
  train::expect_offload_fits<D>(config);
  train::expect_sharing_fits<D>(config, target.ranks());
  const auto forecast = forecast_run<D, T>(target, blueprint, run, config);
  const Report report{.model = text_of_model(config, blueprint, stored),
                      .device = concat(target.device, "; computing in ", name_of(precision_of<T>())),
                      .data = run != nullptr ? "" : concat(" of ", config.cutoff_len, " tokens"),
                      .ranks = target.ranks() > 1 ? text_of_ranks(target, config) : "1, which holds all of it",
                      .devices = target.devices,
                      .nodes = target.nodes,
                      .connected = target.connected,
                      .has_host = !D::reads_host_memory,
                      .device_bytes = target.device_bytes,
                      .host_bytes = target.host_bytes,
                      .forecast = forecast,
                      .layers = blueprint.config.num_hidden_layers};
  std::vector<Strategy> strategies;
  if (config.all) strategies = compare<D, T>(target, blueprint, run, config);
  print_result(config.json  ? io::to_text(json_of(report, strategies), 2) + "\n"
               : config.all ? text_of(report, strategies)
                            : text_of(report));
  return (config.all ? fastest_that_fits(strategies) != nullptr : forecast.fits) ? 0 : 1;
}

}  // namespace

int run_plan(Request& request) {
  settings::Config& config = request.config;
  if (config.dataset.empty()) {
    if (config.step_units == 1 && !config.from_command_line.contains("step_units"))
      config.step_units = train::usual_units(config);
    train::expect_units_of_a_micro_batch(config);
  }
  if (config.step_units < config.ranks && (config.step_units > 1 || config.dataset.empty()))
    fail<ConfigError>("key step_units: given ", config.step_units, ", but ", config.ranks,
                      " processes need one each; allowed: that many, or more");
  const cpu::Device dev(static_cast<int>(config.threads.value_or(0)));
  PlannedModel model = planned_model(config);
#if defined(LORA_WITH_ASCEND)
  if (config.device_type != "auto" && !config.dataset.empty()) {
    const model::Config& shape = model.source.config();
    const kernel::AttentionShape heads = train::shared_attention(config, shape);
    train::settle_prefixes(config, heads, kernel::takes_trees<ascend::Device, float>(heads));
  }
#endif
  // Of records Prepared knows how long they are.
  if (const Index longest = settings::longest_cutoff(config); config.dataset.empty()) {
    inputs::expect_supported_length(model.source.config(), longest, "key cutoff_len: given");
    inputs::warn_of_length(model.source.config(), longest, "key cutoff_len: given");
  }
  const DType stored = model.stored_dtype();
  std::optional<train::Prepared> run;
  if (!config.dataset.empty()) run.emplace(dev, config, std::move(model.source), RunOptions{});
  const model::Blueprint blueprint =
      blueprint_of(run ? run->config : config, run ? run->source : model.source, model.declared);
  const train::Prepared* const prepared = run ? &*run : nullptr;
  // Who plans for an NPU sits elsewhere, perhaps.
  const double here = config.device_type == "auto" ? static_cast<double>(cpu::available_memory())
                                                   : std::numeric_limits<double>::infinity();
  const double host = config.host_memory_gib ? *config.host_memory_gib * 0x1p30 : here;
  Target target;
  target.host_bytes = host;
  target.devices = static_cast<int>(config.devices);
  target.nodes = static_cast<int>(config.nodes);
  const auto named = precision_named(config.dtype);

  if (config.device_type != "auto") {
#if defined(LORA_WITH_ASCEND)
    const Npu& npu = npu_of(config.device_type);
    const Precision precision = named.value_or(stored == DType::f32   ? Precision::float32
                                               : stored == DType::f16 ? Precision::float16
                                                                      : Precision::bfloat16);
    target.device = concat(npu.type, ", from its data sheet: nothing of it was measured");
    target.machine = {.tiling = ascend::Device::tiling()};
    target.rates = rates_of(npu, precision);
    target.device_bytes = config.device_memory_gib.value_or(npu.memory_gib) * 0x1p30;
    constexpr auto piece = static_cast<double>(ascend::Group::piece);
    if (target.ranks() > 1) {
      target.connected = 2 * 200e6 + piece * (1 + target.ranks());  // HCCL_BUFFSIZE, both ways, and scratch of a gather
      target.gather_piece = static_cast<std::size_t>(piece);
    }
    return inputs::with_precision(precision, [&]<class T>(std::type_identity<T>) {
      return plan_on<ascend::Device, T>(target, blueprint, stored, prepared, config);
    });
#else
    fail<ConfigError>("key device_type: given ", config.device_type,
                      ", but this program was built without Ascend NPUs; allowed: auto");
#endif
  }

  cpu::Device measured(static_cast<int>(config.threads.value_or(0)));
  const Precision precision = named.value_or(preferred_precision(measured, stored));
  const Limits limits = measure_limits(measured);
  target.device =
      concat(measured.describe(), ", ", plain_number(limits.f32_gflops, 3), " GFLOP/s in float32, ",
             plain_number(limits.bf16_gflops, 3), " in bfloat16, ", plain_number(limits.gb_per_second, 3), " GB/s");
  target.machine = nn::machine_of(measured);
  target.rates = rates_of(limits, precision);
  target.rates /= target.devices;  // which share the processors
  target.device_bytes = host;
  target.held = run::resident_memory_gib() * 0x1p30;  // of each
  return inputs::with_precision(precision, [&]<class T>(std::type_identity<T>) {
    return plan_on<cpu::Device, T>(target, blueprint, stored, prepared, config);
  });
}
