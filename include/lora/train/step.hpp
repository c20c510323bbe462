#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "lora/core/random.hpp"
#include "lora/data/batch.hpp"
#include "lora/model/decoder.hpp"
#include "lora/optim/adamw.hpp"
#include "lora/optim/clip.hpp"

namespace lora::train {

/// What the gradient of one optimizer step came to.
struct StepResult {
  double loss = 0;       ///< Σ −log p / labelled
  double grad_norm = 0;  ///< before clipping
  Index tokens = 0;
  Index labelled = 0;

  /// A step without labels, or whose loss or gradient is NaN or infinite, must not change anything.
  bool has_labels() const { return labelled > 0; }
  bool finite() const { return std::isfinite(loss) && std::isfinite(grad_norm); }
};

/// One optimizer step after the other: gradients summed over micro-batches, then clipped and applied.
///   loss = Σ −log p over the labelled tokens of all micro-batches / their number
template <AnyDevice D, class T>
class Stepper {
 public:
  /// The adapter must be attached, and stay so.
  Stepper(D& dev, model::Decoder<D, T>& decoder, optim::AdamWSettings settings, double max_grad_norm,
          std::uint64_t seed)
      : decoder_(decoder),
        optimizer_(dev, decoder.params(), settings),
        max_grad_norm_(max_grad_norm),
        seed_(seed),
        sums_(dev, 2, apart),
        totals_(dev, 2, 1) {}

  optim::AdamW<D, T>& optimizer() { return optimizer_; }

  /// From now on, tensors train for whose names `trains(name)` is true; between steps.
  /// Throws   ConfigError as ParamStore::train
  template <class Trains>
  void train(D& dev, const Trains& trains) {
    decoder_.params().train(dev, trains);
    optimizer_.follow(dev);
  }

  /// The gradient of step `step`, the first being 0. How the step is split into micro-batches does not matter.
  StepResult accumulate(D& dev, Index step, std::span<const data::Batch> micro_batches) {
    StepResult result;
    for (const auto& batch : micro_batches) {
      result.tokens += batch.rows();
      result.labelled += batch.labelled;
    }
    if (!result.has_labels()) return result;
    {
      const Span phase(profile_of(dev), Profile::Kind::phase, "update");
      decoder_.params().zero_grad(dev);
      kernel::fill(dev, sums(), 0.0);
    }
    const double scale = 1 / static_cast<double>(result.labelled);
    // Never 0, which would switch dropout off.
    const std::uint64_t dropout_key = mix_key(seed_, dropout_purpose, static_cast<std::uint64_t>(step)) | 1u;
    std::vector<nn::StagedRows> staged;  // until the device is waited for
    for (const auto& batch : micro_batches)
      staged.push_back(
          decoder_.stage(nn::Rows{batch.tokens, batch.positions, batch.places, batch.segments}, batch.labels));
    for (const auto& rows : staged) decoder_.train_micro_batch(dev, rows, scale, dropout_key, sums().row_slice(0, 1));
    const Span phase(profile_of(dev), Profile::Kind::phase, "update");
    optim::add_squared_norm(dev, decoder_.params(), sums().row_slice(1, 1));
    kernel::convert(dev, sums(), totals_.view());
    const auto totals = to_host(dev, totals_.view());  // the step's one read
    result.loss = totals[0] * scale;
    result.grad_norm = std::sqrt(totals[1]);
    return result;
  }

  /// Applies a gradient that `accumulate` has just formed and that is finite.
  void update(D& dev, const StepResult& result, double learning_rate) {
    const Span phase(profile_of(dev), Profile::Kind::phase, "update");
    optimizer_.step(dev, learning_rate, optim::clip_factor(result.grad_norm, max_grad_norm_));
    decoder_.params().refresh(dev);
  }

 private:
  static constexpr std::uint64_t dropout_purpose = 0x64726F70u;
  // Numbers from one sum to the next: a backend may write blocks of 32 bytes.
  static constexpr Index apart = 4;

  View<D, double> sums() { return sums_.view().col_slice(0, 1); }

  model::Decoder<D, T>& decoder_;
  optim::AdamW<D, T> optimizer_;
  double max_grad_norm_;
  std::uint64_t seed_;
  Tensor<D, double> sums_;    // (2, apart) Σ −log p and Σ g², each the first of its row
  Tensor<D, double> totals_;  // (2, 1) both together, as the host reads them
};

}  // namespace lora::train
