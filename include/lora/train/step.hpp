#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/comm/communicator.hpp"
#include "lora/comm/sum_tree.hpp"
#include "lora/core/format.hpp"
#include "lora/core/random.hpp"
#include "lora/cpu/runtime/machine.hpp"
#include "lora/data/batches/batch.hpp"
#include "lora/model/decoder/decoder.hpp"
#include "lora/optim/adamw.hpp"
#include "lora/optim/clip.hpp"
#include "lora/optim/host.hpp"
#include "lora/train/gradient_sum.hpp"
#include "lora/train/layer_gradients.hpp"

namespace lora::train {

/// What the gradient of one optimizer step came to.
struct StepResult {
  double loss = 0;            ///< Σ −log p / labeled
  double grad_norm = 0;       ///< before clipping
  double loss_scale = 1;      ///< that the gradient still has
  Index tokens = 0;           ///< of its sequences
  Index computed_tokens = 0;  ///< fewer where sequences have rows in common
  Index labeled = 0;

  /// A step without labels, or whose loss or gradient is NaN or infinite, must not change anything.
  bool has_labels() const { return labeled > 0; }
  bool finite() const { return std::isfinite(loss) && std::isfinite(grad_norm); }
  /// In float16 a smaller loss scale may help.
  bool overflows() const { return has_labels() && std::isfinite(loss) && !std::isfinite(grad_norm); }
};

/// How ranks share a step.
struct StepSharing {
  /// Parts that a step's sequences are dealt into before anything else. Micro-batches never cross them, and their
  /// gradients are added up in a fixed tree: with as many units, any number of ranks trains the same bits.
  Index units = 1;
  /// What ranks share out. 0: nothing, each has all of it; 1: the optimizer's state; 2: gradients too, of units that
  /// are one micro-batch each. 3 is the same here: whether layers are shared out the decoder was told, and its
  /// parameters whether values are.
  Index zero_stage = 0;
};

/// One optimizer step after the other: gradients summed over micro-batches, units and ranks, then clipped and applied.
///   loss = Σ −log p over the labeled tokens of all micro-batches / their number
template <AnyDevice D, class T>
class Stepper {
 public:
  /// The adapter must be attached, and stay so.
  Stepper(D& dev, model::Decoder<D, T>& decoder, optim::AdamWSettings settings, double max_grad_norm,
          std::uint64_t seed)
      : Stepper(dev, decoder, settings, max_grad_norm, seed, alone(), {}) {}
  /// One of the ranks of `comm`, which outlives this.
  /// Throws   ConfigError for state on the host of a device that has no other memory, or where the host has not enough,
  ///          and DeviceError where none of it can be page-locked
  Stepper(D& dev, model::Decoder<D, T>& decoder, optim::AdamWSettings settings, double max_grad_norm,
          std::uint64_t seed, comm::Communicator<D>& comm, StepSharing sharing, const optim::StatePlace& place = {})
      : decoder_(decoder),
        comm_(comm),
        gradients_(gradient_sum(decoder, comm, sharing)),
        zero_stage_(comm.size() > 1 ? sharing.zero_stage : 0),
        max_grad_norm_(max_grad_norm),
        seed_(seed),
        sums_(dev, gradients_->own().count() + 1, apart),
        totals_(dev, gradients_->own().count() + 1, 1) {
    make_optimizer(dev, settings, zero_stage_ > 0 ? optim::AdamWShard{comm.rank(), comm.size()} : optim::AdamWShard{},
                   place);
  }

  /// Calls f(dev, optimizer), where `dev` is where the optimizer's state lies.
  template <class F>
  auto with_optimizer(D& dev, const F& f) {
    if constexpr (!D::reads_host_memory) {
      if (on_host_ != nullptr) return f(on_host_->dev, on_host_->optimizer);
    }
    return f(dev, *optimizer_);
  }
  /// Updates that were made.
  Index updates(D& dev) {
    return with_optimizer(dev, [](auto&, const auto& optimizer) { return optimizer.updates(); });
  }
  /// The units of a step that this rank forms.
  comm::OwnUnits own_units() const { return gradients_->own(); }

  /// From now on, tensors train for whose names `trains(name)` is true; between steps.
  /// Throws   ConfigError as ParamStore::train
  template <class Trains>
  void train(D& dev, const Trains& trains) {
    decoder_.params().train(dev, trains);
    with_optimizer(dev, [&](auto&, auto& optimizer) { optimizer.follow(dev, &comm_); });
  }

  /// The gradient of step `step`, the first being 0, of a single unit. How it is split into micro-batches does not
  /// matter.
  StepResult accumulate(D& dev, Index step, std::span<const data::Batch> micro_batches, double loss_scale = 1) {
    const std::vector<data::Batch> unit(micro_batches.begin(), micro_batches.end());
    return accumulate(dev, step, std::span(&unit, 1), loss_scale);
  }

  /// The gradient of step `step`, the first being 0, times `loss_scale`, a power of two. `units` are the micro-batches
  /// of this rank's units.
  StepResult accumulate(D& dev, Index step, std::span<const std::vector<data::Batch>> units, double loss_scale = 1) {
    const comm::OwnUnits own = gradients_->own();
    if (static_cast<Index>(units.size()) != own.count())
      fail<ShapeError>("[step] micro-batches of ", units.size(), " units; this rank forms ", own.count());
    for (std::size_t i = 0; zero_stage_ > 1 && i < units.size(); ++i)
      if (units[i].size() > 1)
        fail<ShapeError>("[step] unit ", own[static_cast<Index>(i)], " has ", units[i].size(),
                         " micro-batches; gradients that leave by layer are those of one");
    const auto each_batch = [&](const auto& f) {
      for (const auto& unit : units)
        for (const auto& batch : unit) f(batch);
    };
    Index tokens = 0, computed = 0, labeled = 0;
    each_batch([&](const data::Batch& batch) {
      tokens += batch.sequence_tokens;
      computed += batch.rows();
      labeled += batch.labeled;
    });
    StepResult result{.loss_scale = loss_scale};
    const double counts[] = {static_cast<double>(tokens), static_cast<double>(computed), static_cast<double>(labeled)};
    const auto all_counts = comm_.all_gather(std::span<const double>(counts));
    for (std::size_t i = 0; i < all_counts.size(); i += 3) {
      result.tokens += static_cast<Index>(all_counts[i]);
      result.computed_tokens += static_cast<Index>(all_counts[i + 1]);
      result.labeled += static_cast<Index>(all_counts[i + 2]);
    }
    if (!result.has_labels()) return result;
    const double scale = 1 / static_cast<double>(result.labeled);
    // Never 0, which would switch dropout and noise off.
    const std::uint64_t random_key = mix_key(seed_, dropout_purpose, static_cast<std::uint64_t>(step)) | 1u;
    {
      const ProfileScope phase(dev, Profile::Kind::phase, "update");
      kernel::fill(dev, sums(), 0.0);
    }
    gradients_->run(dev, [&](Index unit, nn::GradientHook<D>* hook) {
      const Index place = (unit - own.begin) / own.stride;
      if (unit < 0 || units[static_cast<std::size_t>(place)].empty())
        return decoder_.pass_without_batch(dev, true, hook);
      for (const auto& batch : units[static_cast<std::size_t>(place)])
        decoder_.train_micro_batch(dev, batch, loss_scale * scale, random_key, sums().row_slice(place, 1), hook);
    });
    const ProfileScope phase(dev, Profile::Kind::phase, "update");
    optim::add_squared_norm(dev, decoder_.params(), comm_, sums().row_slice(own.count(), 1));
    kernel::convert(dev, sums(), totals_.view());
    const auto read = to_host(dev, totals_.view());  // the step's one read
    const std::vector<double> totals(read.begin(), read.end());
    result.loss =
        comm::tree_sum(losses_of(std::span(totals).first(totals.size() - 1)), {0, gradients_->units()}) * scale;
    result.grad_norm = std::sqrt(totals.back()) / loss_scale;
    return result;
  }

  /// Applies a gradient that `accumulate` has just formed and that is finite.
  void update(D& dev, const StepResult& result, double learning_rate) {
    const ProfileScope phase(dev, Profile::Kind::phase, "update");
    nn::ParamStore<D, T>& params = decoder_.params();
    const auto complete = [&](auto kind) {
      for (Index group = 0; group < params.groups(); ++group)
        if (const auto slab = params.slab(group); params.size(group).trained > 0)
          for (const nn::Bucket& bucket : params.size(group).shared_out())
            comm_.all_gather(dev, (slab.*kind).col_slice(bucket.begin, bucket.size()),
                             nn::parts_of(bucket, comm_.size()));
    };
    using Slab = typename nn::ParamStore<D, T>::Slab;
    if (zero_stage_ == 0) complete(&Slab::grad);
    const double factor = optim::clip_factor(result.grad_norm, max_grad_norm_) / result.loss_scale;
    with_optimizer(dev, [&](auto&, auto& optimizer) { optimizer.step(dev, learning_rate, factor); });
    if (zero_stage_ > 0 && !params.shares_values()) {
      if (params.values_on_host())
        complete_on_host(dev);
      else
        complete(&Slab::value);
    }
    params.refresh_copies(dev);
  }

 private:
  // Values that each rank has whole on its host, of which it has updated its part.
  void complete_on_host(D& dev) {
    nn::ParamStore<D, T>& params = decoder_.params();
    dev.synchronize();  // nothing is copied from there any more
    for (Index group = 0; group < params.groups(); ++group) {
      if (params.size(group).trained == 0) continue;
      for (const nn::Bucket& bucket : params.size(group).shared_out()) {
        Accum<T>* const values = params.value_on_host(group, {bucket.begin, bucket.end, bucket.begin});
        comm_.gather_on_host(std::as_writable_bytes(std::span(values, static_cast<std::size_t>(bucket.size()))),
                             comm::in_bytes(nn::parts_of(bucket, comm_.size()), sizeof(Accum<T>)));
      }
    }
  }

  static constexpr std::uint64_t dropout_purpose = 0x64726F70u;
  // Numbers from one sum to the next: a backend may write blocks of 32 bytes.
  static constexpr Index apart = view_alignment / sizeof(typename D::Sum);

  // The optimizer of a device that can't read the host's memory, with its state there.
  struct OnHost {
    using Optimizer = optim::AdamW<D, T, optim::Host>;

    OnHost(D& dev_, nn::ParamStore<D, T>& params, const optim::AdamWSettings& settings,
           std::vector<optim::AdamWGroup> groups, optim::AdamWShard shard, int threads, Index piece)
        : dev(threads), optimizer(dev_, dev, params, settings, std::move(groups), shard, piece) {}

    optim::Host dev;
    Optimizer optimizer;
  };

  // As Decoder deals parameters out: biases and the weights of norms don't decay.
  static std::vector<optim::AdamWGroup> groups(const optim::AdamWSettings& settings) {
    return {{.weight_decay = settings.weight_decay},
            {.weight_decay = 0},
            {.learning_rate_factor = settings.lr_ratio, .weight_decay = settings.weight_decay}};
  }

  void make_optimizer(D& dev, const optim::AdamWSettings& settings, optim::AdamWShard shard,
                      const optim::StatePlace& place) {
    nn::ParamStore<D, T>& params = decoder_.params();
    if (!place.on_host) {
      if (params.values_on_host()) fail<Error>("[step] values that lie on the host need their optimizer there");
      optimizer_.emplace(dev, dev, params, settings, groups(settings), shard);
      return;
    }
    if constexpr (D::reads_host_memory) {
      fail<ConfigError>("the optimizer's state can't leave a device whose memory is the host's");
    } else {
      const Index piece = place.piece.value_or(OnHost::Optimizer::default_piece);
      const std::size_t needed = OnHost::Optimizer::host_bytes(params, shard, piece);
      const std::size_t available = place.memory ? *place.memory : cpu::available_memory();
      if (needed > available)
        fail<ConfigError>("key offload: the optimizer's state needs ", size_text(needed), " of the host's memory, but ",
                          size_text(available), " are available; allowed: none, or params with an adapter");
      try {
        on_host_ = std::make_unique<OnHost>(dev, params, settings, groups(settings), shard, place.threads, piece);
      } catch (const DeviceError& error) {
        fail<DeviceError>("key offload: memory on the host for the optimizer's state, ", size_text(needed),
                          ", can't be had: ", std::string_view(error.what()));
      }
    }
  }

  static comm::Single<D>& alone() {
    static comm::Single<D> single;  // which has no state
    return single;
  }

  static std::unique_ptr<GradientSum<D, T>> gradient_sum(model::Decoder<D, T>& decoder, comm::Communicator<D>& comm,
                                                         const StepSharing& sharing) {
    nn::ParamStore<D, T>& params = decoder.params();
    const bool by_layer = comm.size() > 1 && sharing.zero_stage > 1;
    if (by_layer != params.gives_gradients_away())
      fail<Error>("[step] zero_stage ", sharing.zero_stage, by_layer ? " needs" : " excludes",
                  " parameters that ranks share out by layer, see ParamStore::share_by_layer");
    if (by_layer) return std::make_unique<LayerGradients<D, T>>(comm, params, sharing.units, decoder.stack().size());
    return std::make_unique<WholeGradients<D, T>>(comm, params, sharing.units);
  }

  // Of all units in their order, of which this rank has formed `own`.
  std::vector<double> losses_of(std::span<const double> own) {
    std::vector<Index> begins{0};
    for (int rank = 0; rank < comm_.size(); ++rank)
      begins.push_back(begins.back() + gradients_->units_of(rank).count());
    const auto gathered = comm_.all_gather(own, begins);
    std::vector<double> losses(gathered.size());
    auto next = gathered.begin();
    for (int rank = 0; rank < comm_.size(); ++rank)
      for (Index i = 0; i < gradients_->units_of(rank).count(); ++i)
        losses[static_cast<std::size_t>(gradients_->units_of(rank)[i])] = *next++;
    return losses;
  }

  View<D, typename D::Sum> sums() { return sums_.view().col_slice(0, 1); }

  model::Decoder<D, T>& decoder_;
  comm::Communicator<D>& comm_;
  std::unique_ptr<GradientSum<D, T>> gradients_;
  Index zero_stage_;                             // 0 of a single rank
  std::optional<optim::AdamW<D, T>> optimizer_;  // or
  std::unique_ptr<OnHost> on_host_;
  double max_grad_norm_;
  std::uint64_t seed_;
  Tensor<D, typename D::Sum> sums_;  // (own units + 1, apart) Σ −log p of each and Σ g², each the first of its row
  Tensor<D, typename D::Sum> totals_;  // (own units + 1, 1) all together, as the host reads them
};

}  // namespace lora::train
