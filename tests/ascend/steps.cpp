// A training step of a large model, or a token that it answers, by its shapes alone: all but the numbers. The stand-in
// for the vendor's libraries counts what it is asked to do and does nothing (STAND_IN_DRY), so that 64 GiB of device
// memory and a model of 32 billion parameters fit anywhere.
//
//   ascend_steps [--shape 7b|14b|32b] [--rank R] [--tokens N] [--sequences B] [--micro_batches M] [--recompute]
//                [--offload none|params|optimizer|all] [--keep] [--stored bf16|q8_0] [--dropout P] [--memory GIB]
//                [--operators]
//   ascend_steps --decode [--shape 7b|14b|32b] [--rank R] [--tokens N] [--sequences B] [--stored bf16|q8_0]
//                [--memory GIB] [--operators]
//
// (--keep: streamed layers stay on the device as far as there is room; --decode: one more token of each of B sequences
// of N, with an adapter unless R is 0) prints, in JSON: launches, waits and bytes of a step, FLOPs and bytes by
// operator, memory by part.

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lora/decode/session.hpp"
#include "lora/instantiate.hpp"
#include "lora/train/memory_plan.hpp"
#include "lora/train/step.hpp"
#include "stand_in/stand_in.h"

namespace {

using namespace lora;
using Npu = ascend::Device;

struct Options {
  std::string shape = "7b", offload = "none", stored = "bf16";
  Index rank = 64, tokens = 2048, sequences = 1, micro_batches = 1, memory = 61;
  double dropout = 0;
  bool recompute = false, operators = false, keep = false, decode = false;
};

/// Qwen 2.5's.
model::Config config_of(const std::string& shape) {
  struct Extents {
    std::string_view name;
    Index hidden, ffn, layers, heads, kv_heads;
  };
  constexpr Extents all[] = {
      {"7b", 3584, 18944, 28, 28, 4}, {"14b", 5120, 13824, 48, 40, 8}, {"32b", 5120, 27648, 64, 40, 8}};
  for (const Extents& e : all)
    if (e.name == shape)
      return model::parse_config(io::json_object({{"model_type", "qwen2"},
                                                  {"vocab_size", 152064},
                                                  {"hidden_size", e.hidden},
                                                  {"intermediate_size", e.ffn},
                                                  {"num_hidden_layers", e.layers},
                                                  {"num_attention_heads", e.heads},
                                                  {"num_key_value_heads", e.kv_heads},
                                                  {"max_position_embeddings", 32768},
                                                  {"rope_theta", 1000000.0},
                                                  {"rms_norm_eps", 1e-6},
                                                  {"hidden_act", "silu"},
                                                  {"tie_word_embeddings", false},
                                                  {"torch_dtype", "bfloat16"}}),
                                 "config.json");
  fail<ConfigError>("--shape: given ", shape, "; expected 7b, 14b or 32b");
}

/// Weights that nobody reads, in addresses that need no memory. Projections are stored as `dtype`.
class ShapesOnly : public model::TensorProvider {
 public:
  ShapesOnly(model::Config config, DType dtype) : config_(std::move(config)), dtype_(dtype) {
    for (const model::TensorInfo& info : model::tensors_of(config_)) {
      bytes_ = std::max(bytes_, static_cast<std::size_t>(bytes_of(DType::bf16, info.shape.count())));
    }
    void* const space = mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED) fail<DeviceError>("no address space of ", bytes_, " bytes");
    memory_ = std::shared_ptr<void>(space, [bytes = bytes_](void* memory) { munmap(memory, bytes); });
  }
  const model::Config& config() const override { return config_; }
  model::ProvidedTensor provide(const model::TensorInfo& info) const override {
    const DType dtype = info.kind == model::TensorInfo::Kind::projection ? dtype_ : DType::bf16;
    const auto size = static_cast<std::size_t>(bytes_of(dtype, info.shape.count()));
    return {dtype, {static_cast<const std::byte*>(memory_.get()), size}, memory_};
  }
  void finish() const override {}

 private:
  model::Config config_;
  DType dtype_;
  std::size_t bytes_ = 0;
  std::shared_ptr<void> memory_;
};

data::Batch batch_of(const Options& options, Index first) {
  data::Batch batch;
  for (Index b = 0; b < options.sequences; ++b) {
    data::Example example;
    example.tokens.assign(static_cast<std::size_t>(options.tokens), 7);
    example.labels.assign(static_cast<std::size_t>(options.tokens), 7);
    batch.append(example, first + b);
  }
  return batch;
}

StandInCounts taken() {
  StandInCounts counts;
  standInCounts(&counts);
  return counts;
}
double used() { return static_cast<double>(taken().allocated_bytes); }

/// What one call of `step` asks, as the report's first part.
template <class Step>
io::Json counts_of(const Options& options, Index tokens, Step&& step) {
  standInResetOperators();
  const StandInCounts begin = taken();
  step();
  const StandInCounts end = taken();
  const auto count = [](std::uint64_t after, std::uint64_t earlier) { return static_cast<Index>(after - earlier); };
  return io::json_object({{"shape", options.shape},
                          {"rank", options.rank},
                          {"tokens", tokens},
                          {"launches", count(end.launches, begin.launches)},
                          {"waits", count(end.waits, begin.waits)},
                          {"allocations", count(end.device_allocations + end.host_allocations,
                                                begin.device_allocations + begin.host_allocations)},
                          {"copies_to_device", count(end.copies_in, begin.copies_in)},
                          {"copies_to_host", count(end.copies_out, begin.copies_out)},
                          {"bytes_to_device", count(end.bytes_in, begin.bytes_in)},
                          {"bytes_to_host", count(end.bytes_out, begin.bytes_out)},
                          {"flops", end.flops - begin.flops},
                          {"operator_bytes", end.operator_bytes - begin.operator_bytes}});
}

/// Adds what each operator has done since `counts_of`.
void add_operators(io::Json& report) {
  io::Json operators = io::Json::object();
  standInOperators(
      [](void* user, const char* name, std::uint64_t launches, double flops, double bytes) {
        (*static_cast<io::Json*>(user))[name] =
            io::json_object({{"launches", static_cast<Index>(launches)}, {"flops", flops}, {"bytes", bytes}});
      },
      &operators);
  report["operators"] = std::move(operators);
}

ShapesOnly provider_of(const Options& options) {
  if (options.stored != "bf16" && options.stored != "q8_0")
    fail<ConfigError>("--stored: given ", options.stored, "; expected bf16 or q8_0");
  return ShapesOnly(config_of(options.shape), options.stored == "q8_0" ? DType::q8_0 : DType::bf16);
}

io::Json step_of(const Options& options) {
  const ShapesOnly provider = provider_of(options);
  Npu dev;
  const double before = used();
  const bool all = options.offload == "all";
  model::WeightPlaces places;
  places.streams_layers = all || options.offload == "params";
  places.memory = std::size_t{1} << 41;  // no host memory is taken either
  model::Decoder<Npu, bf16> decoder(dev, provider, places);
  const double weights = used() - before;
  model::AdapterConfig adapter;
  adapter.rank = options.rank;
  adapter.dropout = options.dropout;
  decoder.attach(dev, adapter);
  decoder.recompute(options.recompute ? provider.config().num_hidden_layers : 0);
  comm::Single<Npu> alone;
  const optim::StatePlace state{.on_host = all || options.offload == "optimizer", .memory = std::size_t{1} << 41};
  train::Stepper<Npu, bf16> stepper(dev, decoder, {}, 1.0, 42, alone, {}, state);
  const double trained = used() - before - weights;

  std::vector<data::Batch> batches;
  for (Index i = 0; i < options.micro_batches; ++i) batches.push_back(batch_of(options, i * options.sequences));
  const auto step = [&](Index number) {
    const auto result = stepper.accumulate(dev, number, batches);
    stepper.update(dev, result, 1e-4);
  };
  step(0);             // which grows the arena
  if (options.keep) {  // what is left holds layers; a run leaves more, for what operators may take of themselves
    const MemoryInfo memory = dev.memory();
    const auto spare = static_cast<Index>(memory.free) - (Index{1} << 30);
    if (spare > 0) decoder.keep_layers(static_cast<std::size_t>(spare));
    step(0);
  }
  const Index rows = options.tokens * options.sequences;
  io::Json report = counts_of(options, rows * options.micro_batches, [&] { step(1); });
  const double most = static_cast<double>(taken().peak_bytes);
  report["recompute"] = options.recompute;
  report["offload"] = options.offload;
  const model::Blueprint blueprint{
      .config = provider.config(),
      .stored = [&](const model::TensorInfo& info) { return provider.provide(info).dtype; },
      .adapter = adapter};
  const auto forecast = train::forecast_memory<Npu, bf16>({blueprint, nn::machine_of(dev), weights}, rows, rows,
                                                          options.recompute ? provider.config().num_hidden_layers : 0);
  report["forecast_gib"] = io::json_object(
      {{"saved_for_backward", forecast.activations / 0x1p30}, {"scratch", forecast.workspace / 0x1p30}});
  report["memory_gib"] =
      io::json_object({{"weights", weights / 0x1p30},
                       {"trained", trained / 0x1p30},
                       {"saved_for_backward", static_cast<double>(dev.arena().peak_saved()) / 0x1p30},
                       {"scratch", static_cast<double>(dev.arena().peak_scratch()) / 0x1p30},
                       {"all", most / 0x1p30}});
  return report;
}

/// A token of each sequence behind those that are there, as it is when answers are drawn.
io::Json token_of(const Options& options) {
  if (options.recompute || options.keep || options.offload != "none" || options.dropout != 0 ||
      options.micro_batches != 1)
    fail<ConfigError>("--decode: given with an option of a training step; expected --shape, --rank, --tokens, ",
                      "--sequences, --stored, --memory or --operators");
  const ShapesOnly provider = provider_of(options);
  Npu dev;
  const double before = used();
  model::Decoder<Npu, bf16> decoder(dev, provider);
  const double weights = used() - before;
  if (options.rank > 0) {
    model::AdapterConfig adapter;
    adapter.rank = options.rank;
    decoder.attach(dev, adapter);
  }
  const Index room = options.tokens + 2;
  decode::Session<Npu, bf16> session(dev, decoder, options.sequences * room);
  const double loaded = used() - before;
  std::vector<decode::Sequence> sequences;
  for (Index b = 0; b < options.sequences; ++b) sequences.push_back(session.enter(room));
  const auto step = [&](Index count) {
    const std::vector<std::int32_t> tokens(static_cast<std::size_t>(count), 7);
    for (const decode::Sequence sequence : sequences) session.append(sequence, tokens);
    session.step();
  };
  step(options.tokens);
  step(1);  // the first of its kind, which may grow what it needs
  io::Json report = counts_of(options, options.sequences, [&] { step(1); });
  report["context"] = options.tokens;
  report["memory_gib"] = io::json_object({{"weights", weights / 0x1p30},
                                          {"adapter_and_cache", (loaded - weights) / 0x1p30},
                                          {"scratch", static_cast<double>(dev.arena().peak_scratch()) / 0x1p30},
                                          {"all", static_cast<double>(taken().peak_bytes) / 0x1p30}});
  return report;
}

Options options_of(int count, char** words) {
  Options options;
  const std::map<std::string_view, Index*> numbers = {{"--rank", &options.rank},
                                                      {"--tokens", &options.tokens},
                                                      {"--sequences", &options.sequences},
                                                      {"--micro_batches", &options.micro_batches},
                                                      {"--memory", &options.memory}};
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    const auto value = [&] {
      if (i + 1 == count) fail<ConfigError>(word, ": a value is missing");
      return std::string(words[++i]);
    };
    if (word == "--recompute") {
      options.recompute = true;
    } else if (word == "--decode") {
      options.decode = true;
    } else if (word == "--keep") {
      options.keep = true;
    } else if (word == "--operators") {
      options.operators = true;
    } else if (word == "--shape") {
      options.shape = value();
    } else if (word == "--dropout") {
      options.dropout = std::stod(value());
    } else if (word == "--stored") {
      options.stored = value();
    } else if (word == "--offload") {
      options.offload = value();
    } else if (const auto number = numbers.find(word); number != numbers.end()) {
      *number->second = std::stol(value());
    } else {
      fail<ConfigError>("unknown option ", word);
    }
  }
  return options;
}

}  // namespace

int main(int count, char** words) {
  try {
    const Options options = options_of(count, words);
    setenv("LORA_ASCEND_LIBRARIES", LORA_STAND_IN, 1);
    standInSet("dry", 1);
    standInSet("memory_bytes", options.memory << 30);
    io::Json report = options.decode ? token_of(options) : step_of(options);
    if (options.operators) add_operators(report);
    std::puts(io::to_text(report, 2).c_str());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ascend_steps: %s\n", error.what());
    return 1;
  }
}
