#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/log.hpp"
#include "lora/io/formats/safetensors.hpp"
#include "lora/model/description/config_gguf.hpp"
#include "lora/model/description/config_json.hpp"
#include "lora/model/weights/random_weights.hpp"
#include "lora/model/weights/streamed_layers.hpp"
#include "lora/model/weights/tensor_provider.hpp"
#include "lora/nn/weight.hpp"

namespace lora::model {

/// A base model: its config and its tensors under their Hugging Face names, from a folder or a GGUF file, whose data
/// stay in the mapped file, or as training from scratch begins.
class Source : public TensorProvider {
 public:
  static Source open(const io::Path& path);

  /// A model of this config.json with random weights. `path`: the folder of its tokenizer, and what names it in errors;
  /// weights there are not read. `seed`: of RandomWeights.
  static Source initial(const io::Path& path, io::Json json, std::uint64_t seed);

  const io::Path& path() const { return path_; }
  /// Whether nothing has trained the weights.
  bool is_initial() const { return random_.has_value(); }
  const Config& config() const override { return config_; }
  Config& config() { return config_; }
  /// Null for a folder.
  const io::Gguf* gguf() const { return gguf_ ? &*gguf_ : nullptr; }

  /// A folder's config.json as it was read, but for a tie that its weights contradict, and for the class of a model
  /// that was saved without its head; null for a GGUF file.
  const io::Json& config_json() const { return config_json_; }

  /// All that the files hold, under their own names; nothing of an initial model.
  const std::vector<io::StoredTensor>& tensors() const;

  /// What the file calls the tensor.
  std::string file_name_of(const TensorInfo& info) const {
    return gguf_ ? info.gguf_name : std::string(name_in_folder(info.name));
  }

  /// Gives the model a head of its own, which begins with the numbers of the embedding that it was tied to.
  void part_head();

  /// The tensor of a file; its rows may lie in another order, see ProvidedTensor::permuted_heads.
  /// Throws   FormatError if it is missing or has another shape
  const io::StoredTensor& at(const TensorInfo& info) const;

  /// As `at`.
  ProvidedTensor provide(const TensorInfo& info) const override;

  /// The type in which it is provided.
  DType dtype_of(const TensorInfo& info) const { return random_ ? DType::f32 : at(info).dtype; }

  /// Throws   FormatError listing tensors that no part of such a model reads
  void finish() const override;

  /// The type of the layers' matrices: that of the first layer's down_proj.
  DType stored_dtype() const;

 private:
  Source(io::Path path, io::Safetensors file, io::Json json, Config config);
  Source(io::Path path, io::Json json, Config config, std::uint64_t seed);
  Source(io::Path path, io::Gguf file, Config config)
      : path_(std::move(path)), config_(std::move(config)), gguf_(std::move(file)) {}

  const io::StoredTensor* find(std::string_view name) const;

  // Files of a model that was saved without its head, as an embedding model's, have names without "model.".
  // Source   transformers 5, base_model_prefix
  std::string_view name_in_folder(std::string_view name) const {
    return has_no_prefix_ && name.starts_with(prefix) ? name.substr(prefix.size()) : name;
  }
  static constexpr std::string_view prefix = "model.";

  // The tensor that holds the numbers of a tied embedding, or of a head that was tied, where it has none of its own.
  std::string_view name_tied_to(const TensorInfo& info) const;

  // Of a head and an embedding with different numbers both are used, whatever config.json says of a tie.
  // Source   transformers 5, PreTrainedModel.tie_weights
  void take_own_head();

  io::Path path_;
  Config config_;
  bool head_was_tied_ = false;  // to the embedding, from which `part_head` has parted it
  io::Json config_json_;
  std::optional<io::Safetensors> safetensors_;
  bool has_no_prefix_ = false;
  std::optional<io::Gguf> gguf_;
  std::optional<RandomWeights> random_;
};

/// The type that a tensor has in a model folder, which holds no GGUF blocks.
inline DType folder_dtype(DType stored) { return block_elements(stored) > 1 ? DType::bf16 : stored; }

/// Hugging Face's name of a dtype that a model folder may have.
std::string_view config_dtype_name(DType dtype);

/// The config.json of the source as it computes: a folder's own with the rotary settings in use, or one written for a
/// GGUF file.
/// Throws   FormatError for a GGUF file that no config.json can describe
io::Json config_json_of(const Source& source);

/// Whether rope_theta or no_rope_layers are other than the source's own file says.
bool rotary_changed(const Source& source);

/// Whether a tensor of blocks comes to the device as it is stored. Where kernels take blocks split, only products do:
/// rows of an embedding or a head are read by other operators.
template <class D>
constexpr bool stays_quantized(const TensorInfo& info, DType stored) {
  return D::decodes(stored) && (!D::splits_blocks || info.kind == TensorInfo::Kind::projection);
}

/// Reads the tensors of a model onto a device by their names. `finish` waits for the device.
template <AnyDevice D>
class Loader {
 public:
  /// `streamed` gets the projections of layers; null: the device does.
  Loader(D& dev, const TensorProvider& provider, const WeightPlaces& places = {}, StreamedLayers<D>* streamed = nullptr)
      : dev_(dev),
        provider_(provider),
        host_decodes_(places.host_decodes),
        threads_(places.threads),
        trained_(D::reads_host_memory ? nullptr : places.trained),
        streamed_(streamed) {
    for (const TensorInfo& info : tensors_of(provider.config())) tensors_.emplace(info.name, info);
  }

  /// Whether such a model has the tensor.
  bool has(const std::string& name) const { return tensors_.count(name) != 0; }

  /// These matrices, of as many columns and read next, are to lie one below the other where the device gets copies of
  /// them.
  void join(std::span<const std::string> names) {
    joined_rows_ = 0;
    for (const std::string& name : names)
      if (const TensorInfo& info = tensors_.at(name); !comes_later(info)) joined_rows_ += info.shape[0];
    joined_.reset();
  }

  /// A matrix of a model that computes in T, in place in host memory where the device reads that and it is aligned to
  /// its type and in order, else as an own copy, or streamed; one that is to train comes when it is used.
  template <class T>
  nn::Weight<D> weight(const std::string& name) {
    const TensorInfo& info = tensors_.at(name);
    const Index rows = info.shape[0], cols = info.shape[1];
    if constexpr (!D::reads_host_memory) {
      if (comes_later(info)) {
        if (later_ == nullptr)
          later_ = std::make_shared<Loader>(dev_, provider_,
                                            WeightPlaces{.host_decodes = host_decodes_, .threads = threads_});
        return nn::Weight<D>([later = later_, info](D&) { return later->template in_scratch<T>(info); },
                             StoredView<D>(nullptr, dtype_of<T>, rows, cols));
      }
    }
    const ProvidedTensor tensor = provided(info);
    if constexpr (D::reads_host_memory) {
      const auto address = reinterpret_cast<std::uintptr_t>(tensor.bytes.data());
      const std::size_t aligned_to =
          block_elements(tensor.dtype) > 1 ? 1 : static_cast<std::size_t>(block_bytes(tensor.dtype));
      if (tensor.permuted_heads == 0 && address % aligned_to == 0)
        return nn::Weight<D>(StoredView<D>(tensor.bytes.data(), tensor.dtype, rows, cols), tensor.owner);
    }
    HostMatrix matrix = as_it_comes<T>(info, tensor);
    if constexpr (!D::reads_host_memory) {
      if (streamed_ != nullptr && info.kind == TensorInfo::Kind::projection)
        return streamed_->add(info.layer, std::move(matrix));
    }
    const auto [owner, place] = memory_for(matrix);
    copy(matrix, place);
    return nn::Weight<D>(StoredView<D>(place.data(), matrix.dtype(), rows, cols), owner);
  }

  /// A vector, widened to A: norms and biases are small.
  template <class A>
  Tensor<D, A> vector(const std::string& name) {
    const TensorInfo& info = tensors_.at(name);
    const ProvidedTensor tensor = provided(info);
    const Index size = info.shape[0];
    if constexpr (!D::reads_host_memory) {
      if (host_decodes_.value_or(!D::decodes(DType::f64))) {
        Tensor<D, A> wide(dev_, size);
        const View<D, std::byte> bytes(reinterpret_cast<std::byte*>(wide.view().data()), size * Index{sizeof(A)});
        const bool in_order = tensor.permuted_heads == 0;  // else a row each, to be put in order
        copy(HostMatrix::decoded<A>(tensor, in_order ? 1 : size, in_order ? size : 1), bytes);
        return wide;
      }
    }
    Tensor<D, std::byte> raw(dev_, static_cast<Index>(tensor.bytes.size()));
    copy(HostMatrix(tensor, size, 1), raw.view());
    Tensor<D, A> wide(dev_, size);
    kernel::decode(dev_, StoredView<D>(raw.view().data(), tensor.dtype, 1, size), wide.view());
    return wide;
  }

  /// To be called when all tensors are read.
  /// Throws   FormatError listing tensors of the files that such a model does not have
  void finish() {
    release_held();
    provider_.finish();
  }

 private:
  bool comes_later(const TensorInfo& info) const { return trained_ && trained_(info); }

  // As the device gets it.
  template <class T>
  HostMatrix as_it_comes(const TensorInfo& info, const ProvidedTensor& tensor) const {
    const Index rows = info.shape[0], cols = info.shape[1];
    if constexpr (!D::reads_host_memory) {
      const bool blocks = block_elements(tensor.dtype) > 1;
      if (blocks ? host_decodes_.value_or(!stays_quantized<D>(info, tensor.dtype)) : !D::decodes(tensor.dtype))
        return HostMatrix::decoded<T>(tensor, rows, cols);
      if (blocks && D::splits_blocks) return HostMatrix::split(tensor, rows, cols);
    }
    return HostMatrix(tensor, rows, cols);
  }

  // In scratch of the enclosing scope.
  template <class T>
  StoredView<D> in_scratch(const TensorInfo& info) {
    const HostMatrix matrix = as_it_comes<T>(info, provided(info));
    const View<D, std::byte> place = scratch<std::byte>(dev_, 1, static_cast<Index>(matrix.bytes()));
    copy(matrix, place);
    release_held();
    team_.reset();  // else it would live as long as the model
    return StoredView<D>(place.data(), matrix.dtype(), matrix.rows(), matrix.cols());
  }

  // Of the device: below the matrix that was read before, where they are joined and of one type.
  std::pair<std::shared_ptr<const void>, View<D, std::byte>> memory_for(const HostMatrix& matrix) {
    const auto bytes = static_cast<Index>(matrix.bytes());
    if (joined_ == nullptr && joined_rows_ > matrix.rows() && dev_.tiling().joins_projections) {
      joined_ = std::make_shared<Tensor<D, std::byte>>(dev_, bytes_of(matrix.dtype(), joined_rows_ * matrix.cols()));
      joined_bytes_ = 0;
    }
    joined_rows_ -= std::min(joined_rows_, matrix.rows());
    const bool aligned = joined_bytes_ % static_cast<Index>(Arena::alignment) == 0;
    if (joined_ != nullptr && aligned && joined_bytes_ + bytes <= joined_->size()) {
      const View<D, std::byte> place = joined_->view().col_slice(joined_bytes_, bytes);
      joined_bytes_ += bytes;
      return {joined_, place};
    }
    const auto own = std::make_shared<Tensor<D, std::byte>>(dev_, bytes);
    return {own, own->view()};
  }

  ProvidedTensor provided(const TensorInfo& info) const {
    ProvidedTensor tensor = provider_.provide(info);
    const Index expected = bytes_of(tensor.dtype, info.shape.count());
    if (static_cast<Index>(tensor.bytes.size()) != expected)
      fail<ShapeError>("[loader] the provider has ", tensor.bytes.size(), " bytes of ", info.name, "; expected ",
                       expected, " for ", name_of(tensor.dtype), " ", to_string(info.shape));
    return tensor;
  }

  // Keeps what a copy may still read: never a whole model that a provider makes as it is asked.
  void hold(const ProvidedTensor& tensor) {
    if (D::reads_host_memory) return;
    held_.push_back(tensor.owner);
    held_bytes_ += tensor.bytes.size();
    if (held_bytes_ >= held_limit) release_held();
  }
  void release_held() {
    dev_.synchronize();
    held_.clear();
    held_bytes_ = 0;
  }

  void copy(const HostMatrix& matrix, View<D, std::byte> target) {
    if (matrix.is_as_provided()) {
      copy_from_host<D, std::byte>(dev_, matrix.tensor().bytes, target);
      return hold(matrix.tensor());
    }
    if (!team_) team_.emplace(threads_);
    std::vector<std::byte> result(matrix.bytes());
    matrix.write(*team_, result.data());
    copy_from_host<D, std::byte>(dev_, result, target);
    dev_.synchronize();  // the result goes away
  }

  D& dev_;
  const TensorProvider& provider_;
  std::optional<bool> host_decodes_;
  int threads_;
  std::function<bool(const TensorInfo&)> trained_;
  std::shared_ptr<Loader> later_;  // of those, as long as one is there
  StreamedLayers<D>* streamed_;
  static constexpr std::size_t held_limit = std::size_t{16} << 20;
  std::vector<std::shared_ptr<const void>> held_;  // what copies read, until the device is waited for
  std::size_t held_bytes_ = 0;
  std::map<std::string, TensorInfo> tensors_;
  std::optional<cpu::Threads> team_;  // once it has something to do
  Index joined_rows_ = 0;             // of matrices that are still to come
  std::shared_ptr<Tensor<D, std::byte>> joined_;
  Index joined_bytes_ = 0;  // that are taken
};

}  // namespace lora::model

#ifndef LORA_COMPILED
#  include "lora/model/weights/weights.ipp"
#endif
