#pragma once

#include "lora/core/config.hpp"
#include "lora/run/base_checksum.hpp"

namespace lora::run {

LORA_INLINE std::vector<std::uint64_t> checksums(std::span<const std::span<const std::byte>> strings, int threads) {
  constexpr std::size_t piece_bytes = std::size_t{1} << 20;
  struct Piece {
    std::span<const std::byte> bytes;
    std::uint64_t sum = 0;
  };
  std::vector<Piece> pieces;
  std::vector<std::size_t> ends;
  for (auto bytes : strings) {
    for (; !bytes.empty(); bytes = bytes.subspan(std::min(piece_bytes, bytes.size())))
      pieces.push_back({bytes.first(std::min(piece_bytes, bytes.size()))});
    ends.push_back(pieces.size());
  }
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i; (i = next.fetch_add(1)) < pieces.size();) pieces[i].sum = checksum(pieces[i].bytes);
  };
  std::vector<std::thread> others;
  const auto wanted = std::min(static_cast<std::size_t>(std::max(threads, 1)), pieces.size());
  try {
    while (others.size() + 1 < wanted) others.emplace_back(work);
  } catch (const std::system_error&) {  // go on with the threads that could be started
  }
  work();
  for (std::thread& other : others) other.join();
  std::vector<std::uint64_t> sums;
  for (std::size_t begin = 0; const std::size_t end : ends) {
    std::vector<std::uint64_t> parts;
    for (; begin < end; ++begin) parts.push_back(pieces[begin].sum);
    sums.push_back(checksum(std::as_bytes(std::span(parts))));
  }
  return sums;
}

}  // namespace lora::run

namespace lora::run::detail {

/// Sorted by name: the tensors may be sharded differently.
LORA_INLINE std::vector<const io::StoredTensor*> sorted(const std::vector<io::StoredTensor>& all) {
  std::vector<const io::StoredTensor*> tensors;
  for (const auto& tensor : all) tensors.push_back(&tensor);
  std::sort(tensors.begin(), tensors.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
  return tensors;
}

LORA_INLINE std::string declaration_of(const io::StoredTensor& tensor) {
  return concat(tensor.name, " ", name_of(tensor.dtype), " ", to_string(tensor.shape), " ");
}

LORA_INLINE std::uint64_t checksum_of(const std::vector<io::StoredTensor>& all) {
  const auto tensors = sorted(all);
  std::vector<std::span<const std::byte>> contents;
  for (const auto* tensor : tensors) contents.push_back(tensor->bytes);
  const auto sums = checksums(contents, cpu::available_threads());
  std::string text;
  for (std::size_t i = 0; i < tensors.size(); ++i) text += declaration_of(*tensors[i]) + checksum_text(sums[i]) + "\n";
  return checksum(text);
}

}  // namespace lora::run::detail

namespace lora::run {

LORA_INLINE std::uint64_t weights_checksum(const model::Source& source) {
  return detail::checksum_of(source.tensors());
}

LORA_INLINE std::uint64_t weights_checksum(const model::AdapterFiles& adapter) {
  return detail::checksum_of(adapter.tensors.tensors());
}

LORA_INLINE std::uint64_t sampled_checksum(const model::Source& source) {
  constexpr std::size_t pieces = 16, piece_bytes = 64;
  std::string text;
  for (const auto* tensor : detail::sorted(source.tensors())) {
    text += detail::declaration_of(*tensor);
    const auto bytes = tensor->bytes;
    const std::size_t length = std::min(piece_bytes, bytes.size()), reach = bytes.size() - length;
    for (std::size_t i = 0; i < pieces; ++i) {
      const auto piece = bytes.subspan(reach / (pieces - 1) * i, length);
      text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    }
  }
  return checksum(text);
}

LORA_INLINE std::string base_text(const model::Source& source, bool sampled) {
  const model::Config& shape = source.config();
  const std::string what = concat(shape.model_type, ", ", shape.num_hidden_layers, " layers of ", shape.hidden_size,
                                  " and ", shape.intermediate_size, ", vocabulary of ", shape.vocab_size);
  if (source.is_initial()) return what + ", random weights";
  const std::string begin = what + ", weights with checksum ";
  return sampled ? begin + checksum_text(sampled_checksum(source))
                 : concat(begin, checksum_text(weights_checksum(source)), " of all bytes");
}

}  // namespace lora::run
