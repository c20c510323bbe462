#pragma once

#include <atomic>
#include <complex>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lora/core/ignore_index.hpp"
#include "lora/cpu/kernels/elementwise.hpp"
#include "lora/cpu/runtime/device.hpp"
#include "lora/kernel/reduce.hpp"
#include "lora/model/decoder/adapter.hpp"
#include "lora/model/decoder/evaluation.hpp"
#include "lora/model/decoder/layers.hpp"
#include "lora/model/description/computable.hpp"
#include "lora/model/weights/shared_layers.hpp"
#include "lora/nn/embedding.hpp"
#include "lora/nn/objective.hpp"

namespace lora::model {

/// A decoder-only language model:   logits = head(norm(stack(embedding(tokens)))), with an adapter, or tensors of its
/// own that train, or both.
/// What makes much code is defined below the class: what is defined inside it is inline, and every source that calls it
/// compiles it, whatever lora/instantiate.hpp says.
/// Shapes   tokens, labels (N) · hidden rows (N, E)
template <AnyDevice D, class T>
class Decoder {
 public:
  using Accumulated = Accum<T>;
  using Element = T;

  /// Takes the weights of a Source, or of another provider, in place where the device can read them there, else as
  /// `places` says; the provider is not needed later, but for what that says is to train. `ranks`: that share layers
  /// out, where it says so; they outlive this.
  /// Throws   FormatError naming tensors that are missing, misshapen or unknown; ConfigError for layers that are to be
  ///          streamed to a device that reads the host's memory, and as check_computable, and DeviceError where memory
  ///          is lacking
  Decoder(D& dev, const TensorProvider& provider, const WeightPlaces& places = {},
          comm::Communicator<D>* ranks = nullptr);

  const Config& config() const { return config_; }
  const AdapterConfig& adapter() const { return adapter_; }
  const nn::Head<D, T>& head() const { return *head_; }
  nn::Stack<D, T>& stack() { return stack_; }
  /// What streaming the layers takes, where that is done.
  const std::optional<LayerStreaming>& streaming() const { return streaming_; }
  /// Lets as many streamed layers stay on the device as `bytes` hold. Between passes. Returns the bytes taken.
  std::size_t keep_layers(std::size_t bytes) {
    if constexpr (!D::reads_host_memory) {
      if (streamed_ != nullptr) {
        const std::size_t taken = streamed_->widen(bytes);
        streaming_->device += taken;
        return taken;
      }
    }
    return 0;
  }

  /// Throws   FormatError naming the first of the ids that is not in the vocabulary, and its place among them; `what`
  ///          says what they are
  void check_ids(std::string_view what, std::span<const std::int32_t> ids) const {
    for (std::size_t i = 0; i < ids.size(); ++i) check_id(what, i, ids[i]);
  }

  /// Which of the model's own tensors may train.
  using Choice = std::function<bool(const TensorInfo&)>;

  /// Makes room for this adapter, which `init_adapter` or `load_adapter` fills, and makes parameters of those of the
  /// model's own tensors that it trains in full, or for which `trains` is true, with the numbers that they have as
  /// stored: matrices in group 0 of the store, biases and the weights of norms, which do not decay, in group 1. A tied
  /// head trains with the embedding.
  /// Throws   ConfigError if the adapter targets nothing
  void attach(D& dev, AdapterConfig adapter, const Choice& trains = {}, Index b_group = 0);
  /// The same without an adapter.
  /// Throws   ConfigError if nothing is chosen
  void train_own(D& dev, const Choice& trains);

  /// Gradient checkpointing of layers [0, count); the rest keeps what backward needs.
  void recompute(Index count) {
    for (Index i = 0; i < stack_.size(); ++i) stack_.layer(i).recompute(i < count);
  }

  /// NEFTune: noise on the embeddings of every micro-batch that trains; 0: none.
  void embedding_noise(double alpha) { embedding_.noise_alpha = alpha; }

  /// Whether ranks gather layers from each other, and so make all passes together: a rank that has no micro-batch when
  /// others have makes an empty one.
  bool gathers_layers() const { return stack_.access() != nullptr && stack_.access()->is_collective(); }
  /// Whether ranks share out the values of what trains. Then `value`, `params().whole` and `params().train` are calls
  /// of all ranks, in the same order.
  bool gathers_values() const { return params_->shares_values(); }
  /// Of training, which tells the hook as train_micro_batch does, or of an evaluation. With layers of its own it does
  /// nothing.
  void pass_without_batch(D& dev, bool trains, nn::GradientHook<D>* hook = nullptr) const {
    if (!gathers_layers()) return;
    use_apart(dev, nn::before_layers, "forward");
    stack_.visit_forward(dev, trains);
    use_apart(dev, head_layer(), "head");
    if (!trains) return;
    if (hook != nullptr) hook->formed(dev, nn::behind_layers);
    stack_.visit_backward(dev, embedding_.table.trains(), hook);
  }

  /// Adds the gradients of scale · Σ −log p of the labeled rows to the parameters, and Σ −log p to `loss_sum` (1).
  /// A batch without labels does nothing. Waits for nothing. `hook`, if it is not null, is told of the gradients behind
  /// layers and of each layer's as they are formed; those of the embedding are whole at the end alone. Throws
  /// FormatError for tokens and labels that are not in the vocabulary, ShapeError as Pass
  void train_micro_batch(D& dev, const nn::Batch& batch, double scale, std::uint64_t random_key,
                         View<D, typename D::Sum> loss_sum, nn::GradientHook<D>* hook = nullptr);

  /// The loss of the labeled rows, without any gradient, until *stop is no longer 0, which is looked at before each
  /// layer and each part of the head's rows. `losses`, if it is not null, gets −log p of each of them. Errors as those
  /// of train_micro_batch.
  Evaluation evaluate(D& dev, const nn::Batch& batch, const std::atomic<int>* stop = nullptr,
                      std::vector<double>* losses = nullptr);

  /// logits (n, V) of the chosen rows of a pass, with a cache or without; on the host, row after row.
  /// Throws   FormatError for tokens that are not in the vocabulary, ShapeError for rows that the pass does not have
  std::vector<Accum<T>> logits(D& dev, const nn::Pass<D, T>& pass, std::span<const std::int32_t> chosen);

  /// A tensor of the model as it computes, in Accum<T> and in scratch: of a projection with an adapter W + s B A. Ranks
  /// that share out what trains gather it.
  /// Shapes   as the description's; a vector (1, n)
  View<D, Accum<T>> value(D& dev, const TensorInfo& info);

  /// Everything that may train.
  nn::ParamStore<D, T>& params() { return *params_; }

 private:
  // A projection of a module.
  struct Place {
    nn::LoraLinear<D, T>& group;
    std::size_t j;
  };
  Place place_of(const TensorInfo& info) {
    for (auto* group : stack_.layer(info.layer).inner().groups())
      for (std::size_t j = 0; j < group->projections().size(); ++j)
        if (group->projections()[j].name == info.projection) return {*group, j};
    fail<ConfigError>("no projection is called ", info.projection);
  }
  nn::RmsNorm<D, T>& norm_at(const TensorInfo& info) {
    if (info.layer < 0) return norm_;
    auto& block = stack_.layer(info.layer).inner();
    if (info.norm == "input_layernorm") return block.attention().norm();
    if (info.norm == mlp_norm(config_)) return block.mlp().norm();
    if (info.norm == "post_attention_layernorm") return block.attention().post_norm().norm();
    if (info.norm == "post_feedforward_layernorm") return block.mlp().post_norm().norm();
    return info.norm == "self_attn.q_norm" ? block.attention().q_norm() : block.attention().k_norm();
  }
  // The module's tensor that the description names.
  using OwnTensor = std::variant<nn::OwnMatrix<D, T>*, nn::OwnVector<D, T>*>;
  OwnTensor own(const TensorInfo& info);
  // f(tensor) for it: an OwnMatrix or an OwnVector.
  template <class F>
  void at(const TensorInfo& info, F&& f) {
    std::visit([&](auto* tensor) { f(*tensor); }, own(info));
  }
  // Of the layer whose projection the tensor is, as it is stored, if it is one: no other may be streamed.
  nn::LayerHandle<D> use_of(D& dev, const TensorInfo& info) const {
    const bool projection = info.kind == TensorInfo::Kind::projection;
    nn::LayerAccess<D>* const stored = shared_ != nullptr ? streamed_.get() : stack_.access();
    return nn::LayerHandle<D>(projection ? stored : nullptr, dev, info.layer, -1);
  }
  // Of what belongs to no layer, where what trains comes by layer.
  nn::LayerHandle<D> use_apart(D& dev, Index layer, std::string_view phase_name) const {
    if (shared_ == nullptr) return nn::LayerHandle<D>(nullptr, dev, layer, -1);
    const ProfileScope phase(dev, Profile::Kind::phase, phase_name);
    return nn::LayerHandle<D>(shared_.get(), dev, layer, -1);
  }
  Index head_layer() const { return config_.tie_word_embeddings ? nn::before_layers : nn::behind_layers; }
  // Gives the store the chosen tensors, before it is built.
  void add_own(const Choice& trains);
  void check_chosen(std::span<const std::int32_t> chosen, Index rows) const {
    for (std::size_t i = 0; i < chosen.size(); ++i)
      if (chosen[i] < 0 || chosen[i] >= rows)
        fail<ShapeError>("[decoder] row ", chosen[i], " was chosen, number ", i, ", of a pass of ", rows, " rows");
  }
  void check_id(std::string_view what, std::size_t place, std::int32_t id) const {
    if (id < 0 || id >= config_.vocab_size)
      fail<FormatError>(what, " ", id, " at position ", place, " is not in the model's vocabulary of ",
                        config_.vocab_size);
  }
  // Whether any row has one. Checks all that is looked up by number.
  bool has_labels(const nn::Batch& batch) const;
  // Builds the store, and fills these tensors.
  void build(D& dev);

  // As a number of T, as the embedding's rows are.
  static double rounded_scale(double scale) {
    return std::real(static_cast<Accum<T>>(narrowed<T>(static_cast<Accum<T>>(scale))));
  }
  void reach(D& dev, Index position) {
    rotary_->reach(dev, position);
    if (window_rotary_) window_rotary_->reach(dev, position);
  }

  void embed(D& dev, const nn::Pass<D, T>& pass, View<D, T> x) const {
    const auto table = use_apart(dev, nn::before_layers, "forward");
    const ProfileScope phase(dev, Profile::Kind::phase, "forward");
    embedding_.forward(dev, pass, x);
  }

  // The stack's output without keeping anything.
  void run(D& dev, const nn::Pass<D, T>& pass, View<D, T> hidden) const {
    embed(dev, pass, hidden);
    typename nn::Stack<D, T>::Saved nothing;
    stack_.forward(dev, pass, View<D, const T>(hidden), hidden, nothing, nn::Keep::nothing);
  }

  nn::Objective<D, T> objective() const { return {norm_, *head_}; }

  Config config_;
  AdapterConfig adapter_;
  // Before what holds handles to it.
  std::unique_ptr<nn::ParamStore<D, T>> params_ = std::make_unique<nn::ParamStore<D, T>>();
  std::unique_ptr<nn::Rotary<D, T>> rotary_, window_rotary_;  // layers point to them; the second where it is another
  nn::Embedding<D, T> embedding_;
  std::unique_ptr<StreamedLayers<D>> streamed_;  // before the stack, which calls it
  std::optional<LayerStreaming> streaming_;
  std::unique_ptr<SharedLayers<D, T>> shared_;  // where what trains comes by layer
  nn::Stack<D, T> stack_;
  nn::RmsNorm<D, T> norm_;
  std::optional<nn::Head<D, T>> head_;
};

template <AnyDevice D, class T>
Decoder<D, T>::Decoder(D& dev, const TensorProvider& provider, const WeightPlaces& places, comm::Communicator<D>* ranks)
    : config_(provider.config()), rotary_(std::make_unique<nn::Rotary<D, T>>(config_.rope, config_.head_dim)) {
  check_computable<D, T>(config_);
  if (config_.window_rope) window_rotary_ = std::make_unique<nn::Rotary<D, T>>(*config_.window_rope, config_.head_dim);
  if (places.streams_layers || places.shares_layers) {
    if constexpr (D::reads_host_memory) {
      fail<ConfigError>("key offload: params and all stream layers to a device with memory of its own, but this one ",
                        "reads them in the host's; allowed: none or optimizer");
    } else {
      streamed_ = std::make_unique<StreamedLayers<D>>(dev, config_.num_hidden_layers, places, ranks);
    }
  }
  if constexpr (!D::reads_host_memory) {
    if (places.trains_on_host)
      params_->keep_values_on_host(
          [host = std::make_shared<cpu::Device>(places.threads)](const Accum<T>* from, T* to, Index count) {
            kernel::convert(*host, View<cpu::Device, const Accum<T>>(from, count), View<cpu::Device, T>(to, count));
          });
  }
  Loader<D> loader(dev, provider, places, streamed_.get());
  embedding_.table = nn::OwnMatrix<D, T>(loader.template weight<T>("model.embed_tokens.weight"));
  embedding_.scale = rounded_scale(config_.embedding_scale);
  const LayerBuilder<D, T> builder(loader, config_, *rotary_, window_rotary_ ? *window_rotary_ : *rotary_);
  for (Index i = 0; i < config_.num_hidden_layers; ++i) stack_.push_back(builder.layer(i));
  norm_ = builder.norm("model.norm.weight");
  head_.emplace(
      config_.tie_word_embeddings ? embedding_.table : nn::OwnMatrix<D, T>(loader.template weight<T>("lm_head.weight")),
      dev.tiling(), config_.logit_cap);
  loader.finish();
  if constexpr (!D::reads_host_memory) {
    if (streamed_ != nullptr && streamed_->empty()) streamed_.reset();  // everything is to train
    if (streamed_ != nullptr) streaming_ = streamed_->build();
  }
  stack_.set_access(streamed_.get());
}

template <AnyDevice D, class T>
typename Decoder<D, T>::OwnTensor Decoder<D, T>::own(const TensorInfo& info) {
  using Kind = TensorInfo::Kind;
  if (info.kind == Kind::embedding) return &embedding_.table;
  if (info.kind == Kind::head) return &head_->weight();
  if (info.kind == Kind::norm) return &norm_at(info).weight;
  const auto [group, j] = place_of(info);
  if (info.kind == Kind::projection) return &group.linear(j).weight;
  return &group.linear(j).bias;
}

template <AnyDevice D, class T>
void Decoder<D, T>::attach(D& dev, AdapterConfig adapter, const Choice& trains, Index b_group) {
  if (params_->brings_layers())
    fail<Error>("[decoder] an adapter's matrices are small: they are neither shared out by ranks nor left on the host");
  name_targets(adapter, config_);
  params_->clear();
  for (Index i = 0; i < stack_.size(); ++i) {
    const auto groups = stack_.layer(i).inner().groups();
    const auto ranks = [&](const nn::LoraLinear<D, T>& group) {
      std::vector<nn::LoraRank> result;
      for (const auto& projection : group.projections()) {
        result.push_back(adapter.rank_of(i, projection.name));
        result.back().b_group = b_group;
      }
      return result;
    };
    params_->begin_layer(i);
    for (std::size_t j = 0; j < groups.size(); ++j)
      groups[j]->attach(*params_, group_path(i, groups_of(config_)[j]), ranks(*groups[j]), adapter.dropout);
  }
  if (params_->entries().empty()) fail<ConfigError>("the adapter targets no projection of this model");
  add_own([&](const TensorInfo& info) { return adapter.trains_whole(info) || (trains && trains(info)); });
  build(dev);
  adapter_ = std::move(adapter);
}

template <AnyDevice D, class T>
void Decoder<D, T>::train_own(D& dev, const Choice& trains) {
  params_->clear();
  for (Index i = 0; i < stack_.size(); ++i)
    for (auto* group : stack_.layer(i).inner().groups()) group->detach();
  add_own(trains);
  if (params_->entries().empty()) fail<ConfigError>("none of the model's tensors is chosen to train");
  build(dev);
  adapter_ = {};
}

template <AnyDevice D, class T>
void Decoder<D, T>::add_own(const Choice& trains) {
  for (const TensorInfo& info : tensors_of(config_)) {
    const Index group = info.shape.rank() > 1 ? 0 : 1;
    params_->begin_layer(shared_layer(config_, info));
    at(info, [&](auto& tensor) {
      tensor.freeze();
      if (trains && trains(info)) tensor.add_to(*params_, info.name, group);
    });
  }
  if (config_.tie_word_embeddings) head_->weight() = embedding_.table;
}

template <AnyDevice D, class T>
void Decoder<D, T>::build(D& dev) {
  if (shared_ != nullptr) stack_.set_access(streamed_.get());
  shared_.reset();
  params_->build(dev);
  for (const TensorInfo& info : tensors_of(config_)) {
    at(info, [&](auto& tensor) {
      if (tensor.param().empty()) return;
      const auto weights = use_of(dev, info);
      tensor.start(dev, *params_);
    });
  }
  params_->refresh(dev);
  if (!params_->brings_layers()) return;
  std::vector<bool> reads_stored;
  for (Index i = 0; i < stack_.size(); ++i) {
    bool reads = false;
    for (auto* group : stack_.layer(i).inner().groups())
      for (const auto& projection : group->projections()) reads = reads || projection.linear.weight.param().empty();
    reads_stored.push_back(reads);
  }
  shared_ = std::make_unique<SharedLayers<D, T>>(*params_, streamed_.get(), std::move(reads_stored));
  stack_.set_access(shared_.get());
}

template <AnyDevice D, class T>
bool Decoder<D, T>::has_labels(const nn::Batch& batch) const {
  check_ids("token", batch.tokens);
  bool found = false;
  for (std::size_t i = 0; i < batch.labels.size(); ++i) {
    if (batch.labels[i] == ignore_index) continue;
    check_id("label", i, batch.labels[i]);
    found = true;
  }
  return found;
}

template <AnyDevice D, class T>
void Decoder<D, T>::train_micro_batch(D& dev, const nn::Batch& batch, double scale, std::uint64_t random_key,
                                      View<D, typename D::Sum> loss_sum, nn::GradientHook<D>* hook) {
  if (!has_labels(batch)) return pass_without_batch(dev, true, hook);
  nn::Pass<D, T> pass(dev, batch, random_key);
  pass.want_labeled();
  reach(dev, pass.max_position());
  const Index n = pass.count(), e = config_.hidden_size;
  [[maybe_unused]] const std::size_t mark = dev.arena().mark();
  const Arena::Scope scope(dev.arena());
  const View<D, T> hidden = scratch<T>(dev, n, e);
  const View<D, T> d_hidden = scratch<T>(dev, n, e);
  typename nn::Stack<D, T>::Saved saved;
  embed(dev, pass, d_hidden);
  stack_.forward(dev, pass, View<D, const T>(d_hidden), hidden, saved, nn::Keep::all, embedding_.table.trains());
  {
    const auto head = use_apart(dev, head_layer(), "head");
    objective().loss(dev, View<D, const T>(hidden), {pass.labeled(), pass.labels()}, scale, d_hidden,
                     [&](const auto& outcome) { kernel::sum(dev, outcome.loss, loss_sum); });
  }
  if (hook != nullptr) hook->formed(dev, nn::behind_layers);
  stack_.backward(dev, pass, saved, d_hidden, hook);
  {
    const ProfileScope phase(dev, Profile::Kind::phase, "backward");
    embedding_.backward(dev, pass, d_hidden);
  }
  LORA_ASSERT(dev.arena().mark() == mark);  // else memory is lost, but nothing is computed otherwise
}

template <AnyDevice D, class T>
Evaluation Decoder<D, T>::evaluate(D& dev, const nn::Batch& batch, const std::atomic<int>* stop,
                                   std::vector<double>* losses) {
  Evaluation result;
  if (!has_labels(batch)) {
    pass_without_batch(dev, false);
    return result;
  }
  nn::Pass<D, T> pass(dev, batch);
  reach(dev, pass.max_position());
  pass.want_labeled();
  pass.stop_by(stop);
  result.computed_tokens = batch.rows();
  const Arena::Scope scope(dev.arena());
  const View<D, T> hidden = scratch<T>(dev, pass.count(), config_.hidden_size);
  run(dev, pass, hidden);
  const auto head = use_apart(dev, head_layer(), "head");
  // As the head would cut them itself.
  nn::for_row_tiles(pass.labeled().size(), head_->tiling().head_rows, [&](Index begin, Index count) {
    result.stopped = result.stopped || pass.stopped();
    if (result.stopped) return;
    const nn::Labeled<D> part{pass.labeled().col_slice(begin, count), pass.labels().col_slice(begin, count)};
    objective().loss(dev, View<D, const T>(hidden), part, 1, View<D, T>(), [&](const auto& outcome) {
      const auto loss = to_host(dev, outcome.loss), target = to_host(dev, outcome.target),
                 top = to_host(dev, outcome.top);
      for (std::size_t i = 0; i < loss.size(); ++i) {
        result.loss_sum += std::real(loss[i]);
        if (losses != nullptr) losses->push_back(static_cast<double>(std::real(loss[i])));
        result.correct += std::real(target[i]) >= std::real(top[i]) ? 1 : 0;
      }
    });
    result.labeled += count;
  });
  return result;
}

template <AnyDevice D, class T>
View<D, Accum<T>> Decoder<D, T>::value(D& dev, const TensorInfo& info) {
  if (params_->brings_layers()) {
    std::optional<View<D, Accum<T>>> gathered;
    at(info, [&](const auto& tensor) {
      if (!tensor.param().empty()) gathered = params_->whole(dev, tensor.param());
    });
    if (gathered) return *gathered;
  }
  const auto weights = use_of(dev, info);
  if (info.kind == TensorInfo::Kind::projection) {
    const auto [group, j] = place_of(info);
    return group.merged(dev, j);
  }
  const bool matrix = info.shape.rank() > 1;
  const View<D, Accum<T>> out = scratch<Accum<T>>(dev, matrix ? info.shape[0] : 1, info.shape[matrix ? 1 : 0]);
  at(info, [&](const auto& tensor) { tensor.copy_to(dev, out); });
  return out;
}

template <AnyDevice D, class T>
std::vector<Accum<T>> Decoder<D, T>::logits(D& dev, const nn::Pass<D, T>& pass, std::span<const std::int32_t> chosen) {
  check_ids("token", pass.host_tokens());
  check_chosen(chosen, pass.count());
  reach(dev, pass.max_position());
  const Arena::Scope scope(dev.arena());
  const auto n = static_cast<Index>(chosen.size());
  const View<D, T> hidden = scratch<T>(dev, pass.count(), config_.hidden_size);
  run(dev, pass, hidden);
  if (chosen.empty()) return {};  // it was for the cache alone
  const auto index = tensor_of<std::int32_t>(dev, chosen, 1, n);
  const View<D, T> x = scratch<T>(dev, n, config_.hidden_size);
  kernel::gather_rows(dev, View<D, const T>(hidden), index.view(), x);
  const auto head = use_apart(dev, head_layer(), "head");
  norm_.forward(dev, x, x, {});
  const View<D, Accum<T>> out = scratch<Accum<T>>(dev, n, config_.vocab_size);
  head_->logits(dev, x, out, pass.decodes());
  return to_host(dev, out);
}

}  // namespace lora::model
