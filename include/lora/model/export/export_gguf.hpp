#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "lora/io/formats/gguf_writer.hpp"
#include "lora/model/decoder/adapter.hpp"
#include "lora/model/decoder/decoder.hpp"
#include "lora/model/weights/encoded.hpp"

namespace lora::model {

/// What --outtype names, nothing for auto: f32, f16, bf16 or q8_0.
std::optional<DType> gguf_dtype(std::string_view outtype);

/// Of outtype auto, as llama.cpp's converter has it: bf16 where the model is stored so (or in GGUF blocks), else f16.
DType gguf_dtype_of(const Source& source);

/// Whether a GGUF file can say what such a model computes, to llama.cpp. Throws   FormatError for layers without rotary
/// embedding other than smollm3's, sliding windows, scalings and biases that the architecture has none of there
void check_gguf(const Config& config, const std::string& where);

/// The metadata of a model's file but for its tokenizer.
io::GgufMetadata gguf_metadata(const Config& config, DType dtype, const std::string& name);

/// Its tensors in their order: matrices of `dtype` (Q8_0 where their rows are whole blocks, else F16), vectors in F32.
std::vector<io::TensorDeclaration> gguf_tensors(const Config& config, DType dtype);

namespace detail {

/// Tensors of factors that divide frequencies, by their names: Llama 3.1's scaling, phi3's longrope; none for others.
std::vector<std::pair<std::string, std::vector<float>>> gguf_rope_tensors(const Config& config);

/// Puts the rows of whole heads into the order that a file has them in. Shapes   values (rows, columns)
std::vector<float> permuted(std::vector<float> values, Index rows, Index heads);

/// How many rows of a tensor are encoded at once: about `numbers` of them, and whole heads where rows change places.
Index gguf_rows_at_once(const TensorInfo& info, Index rows, Index cols, Index numbers);

}  // namespace detail

/// Writes the tensors of a model, one after the other, each merged as in save_merged, and rounded once; some rows at a
/// time, of about `at_once` numbers.
template <AnyDevice D, class T>
  requires std::same_as<Accum<T>, float>
void write_gguf_tensors(D& dev, Decoder<D, T>& model, DType dtype, io::GgufWriter& writer,
                        Index at_once = Index{1} << 20) {
  const auto declared = gguf_tensors(model.config(), dtype);
  std::size_t next = 0;
  for (const auto& [name, factors] : detail::gguf_rope_tensors(model.config()))
    writer.add(declared[next++].name, std::as_bytes(std::span(factors)));
  for (const TensorInfo& info : tensors_of(model.config())) {
    const io::TensorDeclaration& tensor = declared[next++];
    const Arena::Scope scope(dev.arena());
    const View<D, Accum<T>> value = model.value(dev, info);
    const bool is_vector = info.shape.rank() == 1;  // (1, n) on the device
    const Index rows = value.rows(), step = detail::gguf_rows_at_once(info, rows, value.cols(), at_once);
    for (Index begin = 0; begin < rows; begin += step) {
      const Index count = std::min(step, rows - begin);
      auto values = to_host(dev, value.row_slice(begin, count));
      if (info.kind == TensorInfo::Kind::norm) move_weights(values, model.config().norm_offset);
      if (info.gguf_heads > 0) {
        const Index heads = is_vector ? info.gguf_heads : info.gguf_heads * count / rows;
        values = detail::permuted(std::move(values), is_vector ? value.cols() : count, heads);
      }
      writer.add(tensor.name, encoded(values, tensor.dtype, info.name));
    }
  }
}

/// An adapter as llama.cpp's LoRA file. `dtype`: of the factors; nothing: as they are stored.
/// Throws   FormatError for an adapter that holds more than factors; ConfigError for one whose scale is 0
class GgufAdapter {
 public:
  GgufAdapter(AdapterFiles files, const Config& config, std::optional<DType> dtype);

  io::GgufMetadata metadata(const std::string& name) const;
  const std::vector<io::TensorDeclaration>& tensors() const { return tensors_; }
  DType dtype() const { return dtype_; }

  void write(io::GgufWriter& writer) const;

 private:
  struct Factor {
    const io::StoredTensor* stored;
    Index heads;   // whose rows change places
    double scale;  // of its numbers
  };

  AdapterFiles files_;
  std::string architecture_;
  DType dtype_;
  double alpha_ = 0;
  std::vector<Factor> factors_;
  std::vector<io::TensorDeclaration> tensors_;
};

}  // namespace lora::model

#ifndef LORA_COMPILED
#  include "lora/model/export/export_gguf.ipp"
#endif
