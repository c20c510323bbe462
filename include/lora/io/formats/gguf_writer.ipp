#pragma once

#include "lora/core/config.hpp"
#include "lora/io/formats/gguf_writer.hpp"

namespace lora::io::detail {

/// GGML's number of a dtype; nothing if it has none.
LORA_INLINE std::optional<std::uint32_t> ggml_number(DType dtype) {
  for (std::uint32_t number = 0; number < 64; ++number)
    if (ggml_dtype(number) == dtype) return number;
  return std::nullopt;
}

constexpr std::uint64_t aligned_gguf(std::uint64_t size) {
  return (size + gguf_alignment - 1) / gguf_alignment * gguf_alignment;
}

}  // namespace lora::io::detail

namespace lora::io {

LORA_INLINE GgufWriter::GgufWriter(const Path& path, const GgufMetadata& metadata,
                                   std::vector<TensorDeclaration> tensors)
    : order_(path, std::move(tensors)), file_(path) {
  std::string head(detail::gguf_magic);
  const auto put = [&](auto number) { head.append(reinterpret_cast<const char*>(&number), sizeof number); };
  put(std::uint32_t{3});
  put(std::uint64_t{order_.tensors().size()});
  put(metadata.count());
  head += metadata.bytes();
  std::uint64_t offset = 0;
  for (const TensorDeclaration& tensor : order_.tensors()) {
    const auto number = detail::ggml_number(tensor.dtype);
    if (!number) fail<FormatError>(order_.where(tensor.name), ": GGUF cannot hold ", lora::name_of(tensor.dtype));
    const int rank = tensor.shape.rank();
    if (rank == 0 || tensor.shape[rank - 1] % block_elements(tensor.dtype) != 0)
      fail<FormatError>(order_.where(tensor.name), ": rows of ", to_string(tensor.shape), " are not whole blocks of ",
                        lora::name_of(tensor.dtype));
    put(std::uint64_t{tensor.name.size()});
    head += tensor.name;
    put(static_cast<std::uint32_t>(rank));
    for (int axis = rank; axis > 0; --axis) put(static_cast<std::uint64_t>(tensor.shape[axis - 1]));
    put(*number);
    put(offset);
    offset += detail::aligned_gguf(static_cast<std::uint64_t>(bytes_of(tensor.dtype, tensor.shape.count())));
  }
  write(head);
  pad();
}

LORA_INLINE void GgufWriter::add(std::string_view name, std::span<const std::byte> bytes) {
  const bool is_last = order_.take(name, bytes.size());
  write({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (is_last) pad();
}

LORA_INLINE void GgufWriter::commit() {
  order_.expect_complete();
  file_.commit();
}

LORA_INLINE void GgufWriter::write(std::string_view bytes) {
  file_.write(bytes);
  size_ += bytes.size();
}

LORA_INLINE void GgufWriter::pad() {
  constexpr char zeros[detail::gguf_alignment] = {};
  write({zeros, detail::aligned_gguf(size_) - size_});
}

}  // namespace lora::io
