#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/precision.hpp"
#include "lora/data/batches/batch.hpp"
#include "lora/doctor/held_device.hpp"
#include "lora/doctor/report.hpp"
#include "lora/io/files/file_system.hpp"
#include "lora/io/files/scratch_file.hpp"
#include "lora/io/files/temporary.hpp"
#include "lora/model/decoder/adapter.hpp"
#include "lora/model/decoder/decoder.hpp"
#include "lora/optim/loss_scale.hpp"
#include "lora/train/step.hpp"

namespace lora::doctor {

/// A model and a training that take a moment.
struct TinyTraining {
  Index vocabulary = 256, hidden = 64, ffn = 128, layers = 3, heads = 2, kv_heads = 1, head_width = 32;
  Index rank = 8, steps = 20;
  double learning_rate = 1e-2, initializer_range = 0.1;
  std::vector<Index> sequences = {17, 9, 22};  ///< of each micro-batch; a step has two
  bool streams_layers = false, state_on_host = false;
};

/// How far losses and norms may be from those of the processors in float32, relatively. What roundings differ by grows
/// from step to step; a wrong gradient makes a difference of some tenths.
struct TrainingBounds {
  double loss, norm;
};
constexpr TrainingBounds training_bounds(Precision precision) {
  if (precision == Precision::float32) return {1e-3, 1e-2};
  return precision == Precision::bfloat16 ? TrainingBounds{3e-2, 0.3} : TrainingBounds{1e-2, 0.1};
}

namespace detail {

/// A folder that goes with this, and with the process.
class PassingFolder {
 public:
  PassingFolder()
      : path_(io::temporary_name(io::scratch_folder() / "lora-doctor", io::Temporary::writing)), unfinished_(path_) {
    io::create_folder(path_);
  }
  PassingFolder(const PassingFolder&) = delete;
  PassingFolder& operator=(const PassingFolder&) = delete;
  ~PassingFolder() {
    try {
      io::remove_all(path_);
    } catch (const std::exception&) {  // it lies among temporary files
    }
    unfinished_.finish();
  }
  const io::Path& path() const { return path_; }

 private:
  io::Path path_;
  io::Unfinished unfinished_;
};

inline model::Source tiny_source(const TinyTraining& tiny) {
  return model::Source::initial("tiny",
                                io::json_object({{"architectures", io::Json::array({"Qwen3ForCausalLM"})},
                                                 {"model_type", "qwen3"},
                                                 {"vocab_size", tiny.vocabulary},
                                                 {"hidden_size", tiny.hidden},
                                                 {"intermediate_size", tiny.ffn},
                                                 {"num_hidden_layers", tiny.layers},
                                                 {"num_attention_heads", tiny.heads},
                                                 {"num_key_value_heads", tiny.kv_heads},
                                                 {"head_dim", tiny.head_width},
                                                 {"hidden_act", "silu"},
                                                 {"max_position_embeddings", 4096},
                                                 {"initializer_range", tiny.initializer_range},
                                                 {"rms_norm_eps", 1e-6},
                                                 {"rope_theta", 10000.0},
                                                 {"tie_word_embeddings", true},
                                                 {"torch_dtype", "float32"}}),
                                7);
}

/// Sequences that can be learned: each token follows from the one before it.
inline data::Batch tiny_batch(const TinyTraining& tiny, Index step, Index micro_batch) {
  data::Batch batch;
  const auto count = static_cast<Index>(tiny.sequences.size());
  for (Index i = 0; i < count; ++i) {
    const Index place = micro_batch * count + i;
    data::Example example;
    Index token = (step * 29 + place * 53) % tiny.vocabulary;
    for (Index j = 0; j < tiny.sequences[static_cast<std::size_t>(i)]; ++j) {
      example.tokens.push_back(static_cast<std::int32_t>(token));
      example.labels.push_back(j < 3 ? ignore_index : example.tokens.back());
      token = (token * 5 + 17) % tiny.vocabulary;
    }
    batch.append(example, place);
  }
  return batch;
}

template <AnyDevice D, class T>
void attach_adapter(D& dev, model::Decoder<D, T>& decoder, const TinyTraining& tiny) {
  model::AdapterConfig config;
  config.rank = tiny.rank;
  config.dropout = 0.1;
  decoder.attach(dev, config);
}

template <AnyDevice D, class T>
double evaluation_of(D& dev, model::Decoder<D, T>& decoder, const TinyTraining& tiny) {
  const data::Batch batch = tiny_batch(tiny, 1000, 0);
  return decoder.evaluate(dev, batch).loss_sum;
}

/// The largest relative difference; infinite where one is no number.
inline double farthest(const std::vector<double>& a, const std::vector<double>& b) {
  double most = a.size() == b.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double difference = std::fabs(a[i] - b[i]) / std::fabs(b[i]);
    most = std::isnan(difference) ? INFINITY : std::max(most, difference);
  }
  return most;
}

}  // namespace detail

/// Trains, saves the adapter, and loads it into another model, which must evaluate to the same bits.
/// `row` has what came before an error.
template <class T, AnyDevice D>
void train_tiny(D& dev, TrainingRow& row, const TinyTraining& tiny = {}) {
  using Clock = std::chrono::steady_clock;
  const model::Source source = detail::tiny_source(tiny);
  const detail::PassingFolder folder;
  const std::size_t free = dev.memory().free;
  double expected = 0;
  {
    model::Decoder<D, T> decoder(dev, source, model::WeightPlaces{.streams_layers = tiny.streams_layers});
    detail::attach_adapter(dev, decoder, tiny);
    model::init_adapter(dev, decoder, 7);
    comm::Single<D> alone;
    train::Stepper<D, T> stepper(dev, decoder, optim::AdamWSettings{.weight_decay = 0.01}, 1.0, 42u, alone, {},
                                 {.on_host = tiny.state_on_host});
    std::optional<optim::LossScale> scale;
    if constexpr (std::same_as<T, f16>) scale.emplace();
    constexpr Index warm_up = 2;
    Index tokens = 0;
    auto begin = Clock::now();
    for (Index step = 0; step < tiny.steps; ++step) {
      if (step == warm_up) {
        dev.synchronize();
        begin = Clock::now();
        tokens = 0;
      }
      const std::vector<data::Batch> batches{detail::tiny_batch(tiny, step, 0), detail::tiny_batch(tiny, step, 1)};
      train::StepResult result = stepper.accumulate(dev, step, batches, scale ? scale->value : 1);
      // Another scale changes no number but by roundings, so that the step can be compared.
      while (scale && result.overflows() && scale->can_shrink()) {
        scale->add_step(true);
        ++row.overflows;
        result = stepper.accumulate(dev, step, batches, scale->value);
      }
      row.losses.push_back(result.loss);
      row.norms.push_back(result.grad_norm);
      if (!result.finite())
        fail<Error>("step ", step + 1, " has the loss ", result.loss, " and the norm ", result.grad_norm);
      stepper.update(dev, result, tiny.learning_rate);
      tokens += result.tokens;
    }
    dev.synchronize();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    row.tokens_per_second = static_cast<double>(tokens) / seconds;
    const std::size_t left = dev.memory().free;
    row.peak_bytes = D::reads_host_memory ? static_cast<double>(dev.arena().peak())
                                          : static_cast<double>(free - std::min(free, left));
    expected = detail::evaluation_of(dev, decoder, tiny);
    model::save_adapter(dev, decoder, folder.path());
  }
  model::Decoder<D, T> decoder(dev, source);
  detail::attach_adapter(dev, decoder, tiny);
  model::load_adapter(dev, decoder, model::open_adapter(folder.path()));
  if (const double again = detail::evaluation_of(dev, decoder, tiny); again != expected) {
    row.state = State::too_far;
    row.words = concat("the adapter evaluates to ", again, " when it is loaded, ", expected, " when it was saved");
  }
}

/// Compares a row with the reference's.
inline void compare(TrainingRow& row, const TrainingRow& reference, TrainingBounds bounds) {
  row.loss_bound = bounds.loss;
  row.norm_bound = bounds.norm;
  row.loss_difference = detail::farthest(row.losses, reference.losses);
  row.norm_difference = detail::farthest(row.norms, reference.norms);
  if (row.loss_difference <= bounds.loss && row.norm_difference <= bounds.norm) return;
  row.state = State::too_far;
  if (row.words.empty()) row.words = "the steps go another way than on the processors";
}

/// Says so where a training's bits are not those of another.
inline void expect_same_bits(TrainingRow& row, const TrainingRow& other) {
  if (row.state == State::failed || other.state == State::failed) return;
  const std::size_t steps = std::min(row.losses.size(), other.losses.size());
  std::size_t same = 0;
  while (same < steps && row.losses[same] == other.losses[same] && row.norms[same] == other.norms[same]) ++same;
  if (same == row.losses.size() && same == other.losses.size()) return;
  row.state = State::too_far;
  row.words = concat("step ", same + 1, " has other bits than in ", other.type);
}

/// Trains in T on the device, with `offload` as the key of a run has it.
template <class T, class Make, class Begins>
void check_training(HeldDevice<Make>& device, Report& report, const Begins& begins, std::string_view offload = "none") {
  constexpr Precision precision = precision_of<T>();
  TrainingRow row;
  row.type = concat(lora::name_of(precision), offload == "none" ? "" : ", offload ", offload == "none" ? "" : offload);
  begins(concat("training in ", row.type));
  TinyTraining tiny;
  tiny.streams_layers = offload == "params" || offload == "all";
  tiny.state_on_host = offload == "optimizer" || offload == "all";
  try {
    train_tiny<T>(device.get(), row, tiny);
    compare(row, report.reference, training_bounds(precision));
  } catch (const std::exception& error) {
    row.state = State::failed;
    row.words = error.what();
    device.look_after();
  }
  report.training.push_back(std::move(row));
}

/// Trains with what a device of its own memory leaves to the host. Layers that stream change no bit, whoever makes
/// AdamW's step; the processors' step rounds in other places than the device's.
template <class Make, class Begins>
void check_offload(HeldDevice<Make>& device, Report& report, const Begins& begins) {
  if constexpr (!HeldDevice<Make>::Device::reads_host_memory) {
    for (const std::string_view offload : {"params", "optimizer", "all"})
      check_training<bf16>(device, report, begins, offload);
    const auto row = [&](std::string_view type) -> TrainingRow& {
      return *std::find_if(report.training.begin(), report.training.end(),
                           [&](const TrainingRow& one) { return one.type == type; });
    };
    expect_same_bits(row("bfloat16, offload params"), row("bfloat16"));
    expect_same_bits(row("bfloat16, offload all"), row("bfloat16, offload optimizer"));
  }
}

}  // namespace lora::doctor
