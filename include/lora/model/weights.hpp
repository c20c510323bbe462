#pragma once

#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lora/io/safetensors.hpp"
#include "lora/model/config_gguf.hpp"
#include "lora/model/config_json.hpp"
#include "lora/nn/weight.hpp"

namespace lora::model {

/// A base model on disk: its config and its tensors under their Hugging Face names, from a folder or a GGUF file. Data
/// stay in the mapped file.
class Source {
 public:
  static Source open(const std::filesystem::path& path) {
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) {
      const auto file = path / "config.json";
      io::Json json = io::read_json(file);
      Config config = parse_config(json, file.native());
      return Source(path, io::Safetensors::open(path), std::move(json), std::move(config));
    }
    if (path.extension() == ".gguf") {
      auto file = io::Gguf::open(path);
      Config config = read_config(file);
      return Source(path, std::move(file), std::move(config));
    }
    if (!std::filesystem::exists(path, ignored)) fail<IoError>(path.native(), ": no such model folder or .gguf file");
    fail<FormatError>(path.native(), ": expected a model folder or a .gguf file");
  }

  const std::filesystem::path& path() const { return path_; }
  const Config& config() const { return config_; }
  Config& config() { return config_; }
  /// Null for a folder.
  const io::Gguf* gguf() const { return gguf_ ? &*gguf_ : nullptr; }

  /// A folder's config.json as it was read; null for a GGUF file.
  const io::Json& config_json() const { return config_json_; }

  /// All that the files hold, under their own names.
  const std::vector<io::StoredTensor>& tensors() const { return gguf_ ? gguf_->tensors() : safetensors_->tensors(); }

  /// What the file calls the tensor that Hugging Face calls `name`; the same name in a folder.
  std::string file_name_of(std::string_view name) const { return gguf_ ? gguf_name(name) : std::string(name); }

  /// The tensor; its rows may lie in another order, see `permuted_heads`.
  /// Throws   FormatError if it is missing or has another shape
  const io::StoredTensor& at(std::string_view name, const Shape& shape) const {
    const std::string stored_name = file_name_of(name);
    const auto* tensor = gguf_ ? gguf_->find(stored_name) : safetensors_->find(stored_name);
    if (tensor == nullptr) fail<FormatError>(path_.native(), ": the tensor ", stored_name, " is missing");
    if (tensor->shape != shape)
      fail<FormatError>(path_.native(), ": the tensor ", stored_name, " is ", to_string(tensor->shape),
                        "; the config expects ", to_string(shape));
    switch (tensor->dtype) {
      case DType::i64:
      case DType::i32:
      case DType::i16:
      case DType::i8:
      case DType::u8:
        fail<FormatError>(path_.native(), ": the tensor ", stored_name, " is ", lora::name_of(tensor->dtype),
                          "; expected a floating point or GGUF block type");
      default:
        return *tensor;
    }
  }

  /// GGUF's llama files hold each q and k head's rows as (pair, half) instead of (half, pair). The number of heads to
  /// put back in order; 0 where rows are in order.
  Index permuted_heads(std::string_view name) const {
    if (!gguf_ || config_.model_type != "llama") return 0;
    if (name.ends_with("q_proj.weight") || name.ends_with("q_proj.bias")) return config_.num_attention_heads;
    if (name.ends_with("k_proj.weight") || name.ends_with("k_proj.bias")) return config_.num_key_value_heads;
    return 0;
  }

  /// Throws   FormatError listing tensors that no part of such a model reads
  void expect_no_others(const std::set<std::string>& used) const {
    std::string extra;
    for (const auto& tensor : tensors()) {
      if (used.count(tensor.name) != 0 || tensor.name.ends_with("rotary_emb.inv_freq") ||
          tensor.name == "rope_freqs.weight")
        continue;
      if (config_.tie_word_embeddings && tensor.name == "lm_head.weight") continue;  // transformers ties it as well
      extra += (extra.empty() ? "" : ", ") + tensor.name;
      if (extra.size() > 300) {
        extra += ", …";
        break;
      }
    }
    if (!extra.empty())
      fail<FormatError>(path_.native(), ": tensors that a ", config_.model_type,
                        " model of this config does not have: ", extra);
  }

  /// The type of the layers' matrices.
  DType stored_dtype() const {
    return at("model.layers.0.mlp.down_proj.weight", {config_.hidden_size, config_.intermediate_size}).dtype;
  }

 private:
  Source(std::filesystem::path path, io::Safetensors file, io::Json json, Config config)
      : path_(std::move(path)),
        config_(std::move(config)),
        config_json_(std::move(json)),
        safetensors_(std::move(file)) {}
  Source(std::filesystem::path path, io::Gguf file, Config config)
      : path_(std::move(path)), config_(std::move(config)), gguf_(std::move(file)) {}

  static std::string gguf_name(std::string_view name) {
    constexpr std::pair<std::string_view, std::string_view> whole[] = {
        {"model.embed_tokens.weight", "token_embd.weight"},
        {"model.norm.weight", "output_norm.weight"},
        {"lm_head.weight", "output.weight"}};
    for (const auto& [from, to] : whole)
      if (name == from) return std::string(to);
    constexpr std::pair<std::string_view, std::string_view> parts[] = {
        {"self_attn.q_proj", "attn_q"},          {"self_attn.k_proj", "attn_k"},
        {"self_attn.v_proj", "attn_v"},          {"self_attn.o_proj", "attn_output"},
        {"self_attn.q_norm", "attn_q_norm"},     {"self_attn.k_norm", "attn_k_norm"},
        {"mlp.gate_proj", "ffn_gate"},           {"mlp.up_proj", "ffn_up"},
        {"mlp.down_proj", "ffn_down"},           {"input_layernorm", "attn_norm"},
        {"post_attention_layernorm", "ffn_norm"}};
    constexpr std::string_view prefix = "model.layers.";
    const auto dot = name.find('.', prefix.size());
    const auto layer = name.substr(prefix.size(), dot - prefix.size());
    const auto last = name.rfind('.');
    for (const auto& [from, to] : parts)
      if (name.substr(dot + 1, last - dot - 1) == from) return concat("blk.", layer, ".", to, name.substr(last));
    fail<FormatError>("no GGUF name is known for the tensor ", name);
  }

  std::filesystem::path path_;
  Config config_;
  io::Json config_json_;
  std::optional<io::Safetensors> safetensors_;
  std::optional<io::Gguf> gguf_;
};

/// The type that a tensor has in a model folder, which holds no GGUF blocks.
inline DType folder_dtype(DType stored) { return block_elements(stored) > 1 ? DType::bf16 : stored; }

/// Hugging Face's name of a dtype that a model folder may have.
inline std::string_view config_dtype_name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "float32";
    case DType::bf16:
      return "bfloat16";
    case DType::f16:
      return "float16";
    default:
      fail<ConfigError>("a model folder can't hold weights as ", name_of(dtype),
                        "; expected float32, bfloat16 or float16");
  }
}

/// The config.json of the source as it computes: a folder's own with the rotary settings in use, or one written for a
/// GGUF file.
/// Throws   FormatError for a GGUF file that no config.json can describe
inline io::Json config_json_of(const Source& source) {
  const std::string where = source.path().native();
  if (source.gguf() != nullptr)
    return to_json(source.config(), config_dtype_name(folder_dtype(source.stored_dtype())), where);
  io::Json json = source.config_json();
  write_rotary(json, source.config(), where);
  return json;
}

/// Whether rope_theta or no_rope_layers are other than the source's own file says.
inline bool rotary_changed(const Source& source) {
  const std::string where = source.path().native();
  const Config own = source.gguf() != nullptr ? read_config(*source.gguf()) : parse_config(source.config_json(), where);
  return own.rope.theta != source.config().rope.theta || own.rotates != source.config().rotates;
}

/// Reads tensors onto a device, and remembers which were read. The source must live until the device has been waited
/// for: `finish` waits.
template <AnyDevice D>
class Loader {
 public:
  Loader(D& dev, const Source& source) : dev_(dev), source_(source) {}

  /// A matrix, in place in the mapped file where it is aligned to its type and in order, else as an own copy.
  nn::Weight<D> weight(const std::string& name, Index rows, Index cols) {
    const auto& tensor = note(name, {rows, cols});
    const Index heads = source_.permuted_heads(name);
    const auto address = reinterpret_cast<std::uintptr_t>(tensor.bytes.data());
    const std::size_t aligned_to =
        block_elements(tensor.dtype) > 1 ? 1 : static_cast<std::size_t>(block_bytes(tensor.dtype));
    if (D::reads_host_memory && heads == 0 && address % aligned_to == 0)
      return nn::Weight<D>(StoredView<D>(tensor.bytes.data(), tensor.dtype, rows, cols), tensor.file);
    auto own = std::make_shared<Tensor<D, std::byte>>(dev_, static_cast<Index>(tensor.bytes.size()));
    copy_in_order(tensor.bytes, rows, heads, own->view());
    const std::byte* data = own->view().data();
    return nn::Weight<D>(StoredView<D>(data, tensor.dtype, rows, cols), std::move(own));
  }

  /// A vector, widened to A: norms and biases are small.
  template <class A>
  Tensor<D, A> vector(const std::string& name, Index size) {
    const auto& tensor = note(name, {size});
    Tensor<D, std::byte> raw(dev_, static_cast<Index>(tensor.bytes.size()));
    copy_in_order(tensor.bytes, size, source_.permuted_heads(name), raw.view());
    Tensor<D, A> wide(dev_, size);
    kernel::widen(dev_, StoredView<D>(raw.view().data(), tensor.dtype, 1, size), wide.view());
    return wide;
  }

  /// To be called when all tensors are read.
  /// Throws   FormatError listing tensors that were not
  void finish() {
    dev_.synchronize();
    source_.expect_no_others(used_);
  }

 private:
  const io::StoredTensor& note(const std::string& name, const Shape& shape) {
    used_.insert(source_.file_name_of(name));
    return source_.at(name, shape);
  }

  // Row (head, half, pair) of the target is row (head, pair, half) of the file.
  void copy_in_order(std::span<const std::byte> bytes, Index rows, Index heads, View<D, std::byte> target) {
    if (heads == 0) return copy_from_host<D, std::byte>(dev_, bytes, target);
    std::vector<std::byte> result(bytes.size());
    const Index width = rows / heads;
    const auto row_bytes = bytes.size() / static_cast<std::size_t>(rows);
    for (Index row = 0; row < rows; ++row) {
      const Index head = row / width, half = row % width / (width / 2), pair = row % (width / 2);
      const auto from = static_cast<std::size_t>(head * width + 2 * pair + half) * row_bytes;
      std::memcpy(result.data() + static_cast<std::size_t>(row) * row_bytes, bytes.data() + from, row_bytes);
    }
    copy_from_host<D, std::byte>(dev_, result, target);
    dev_.synchronize();  // the result goes away
  }

  D& dev_;
  const Source& source_;
  std::set<std::string> used_;
};

}  // namespace lora::model
