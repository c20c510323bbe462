#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lora/comm/communicator.hpp"
#include "lora/io/formats/safetensors.hpp"
#include "lora/model/decoder/decoder.hpp"
#include "lora/optim/adamw.hpp"
#include "lora/tensor/arena.hpp"
#include "lora/tensor/transfer.hpp"
#include "lora/tokenizer/tokenizer.hpp"

namespace lora::run {

/// What a checkpoint takes on disk, about: each number of the adapter and the optimizer's two of it, and the
/// tokenizer's files (null: none).
template <AnyDevice D, class T>
std::uint64_t checkpoint_bytes(model::Decoder<D, T>& decoder, const tokenizer::Tokenizer* tokenizer) {
  std::uint64_t bytes = 1 << 20;  // state and what else is small
  if (tokenizer != nullptr) bytes += tokenizer->saved_bytes();
  const nn::ParamTable& table = decoder.params().table();
  for (const auto& entry : table.entries())
    bytes += 3 * sizeof(float) * static_cast<std::uint64_t>(table.elements_of(entry));
  return bytes;
}

/// The optimizer's state as optimizer.safetensors: m and v of each parameter, laid out as in memory, and for those that
/// began to train later than the first update `.step`, the updates since then. `dev` holds the state. Every rank calls
/// this; those that share the state give their parts, and rank 0 alone writes: only its `folder` counts.
template <AnyDevice D, class T, AnyDevice S>
void save_optimizer(S& dev, optim::AdamW<D, T, S>& optimizer, comm::Communicator<D>& comm, const io::Path& folder) {
  static_assert(std::same_as<Accum<T>, float>, "optimizer state is saved as float32");
  const bool writes = comm.rank() == 0;
  if (!writes && !optimizer.is_shared()) return;
  std::vector<io::TensorDeclaration> declarations;
  const auto for_each_count = [&](const auto& f) {
    for (const auto& entry : optimizer.params().entries())
      if (const Index since = optimizer.since(entry); since > 0)
        f(entry.name + ".step", static_cast<float>(optimizer.updates() - since));
  };
  using State = typename optim::AdamW<D, T, S>::StateTensor;
  optimizer.for_each_state([&](const State& state) { declarations.push_back({state.name, DType::f32, state.shape}); });
  for_each_count([&](const std::string& name, float) { declarations.push_back({name, DType::f32, {1}}); });
  std::optional<io::SafetensorsWriter> writer;
  if (writes) writer.emplace(folder / "optimizer.safetensors", std::move(declarations));
  optimizer.for_each_state([&](const State& state) {
    const auto write = [&](View<S, float> whole) {
      if (!writes) return;
      with_host_values(dev, whole,
                       [&](std::span<const float> values) { writer->add(state.name, std::as_bytes(values)); });
    };
    if (!optimizer.is_shared()) return write(state.own);
    const auto rank = static_cast<std::size_t>(comm.rank());
    const Arena::Scope scope(dev.arena());
    const View<S, float> whole = scratch<float>(dev, 1, state.begins.back());
    if (!state.own.empty()) kernel::convert(dev, state.own, whole.col_slice(state.begins[rank], state.own.size()));
    comm.all_gather_on(dev, whole, state.begins);
    write(whole);
  });
  if (!writes) return;
  for_each_count([&](const std::string& name, float count) { writer->add(name, std::as_bytes(std::span(&count, 1))); });
  writer->commit();
}
template <AnyDevice D, class T, AnyDevice S>
void save_optimizer(S& dev, optim::AdamW<D, T, S>& optimizer, const io::Path& folder) {
  comm::Single<D> alone;
  save_optimizer(dev, optimizer, alone, folder);
}

/// Into an optimizer of the same parameters, of which the same train, that is told how many updates were made. Each of
/// several ranks reads its own part, however many ranks have written the file.
/// Throws   FormatError if a tensor is missing or has another shape, or a count can't be one
template <AnyDevice D, class T, AnyDevice S>
void load_optimizer(S& dev, optim::AdamW<D, T, S>& optimizer, Index updates, const io::Path& folder) {
  const io::Path path = folder / "optimizer.safetensors";
  const auto file = io::Safetensors::open(path);
  const auto expect = [&](const io::StoredTensor& tensor, const Shape& shape) {
    if (tensor.dtype != DType::f32 || tensor.shape != shape)
      fail<FormatError>(path.native(), ": the tensor ", tensor.name, " is ", name_of(tensor.dtype), " ",
                        to_string(tensor.shape), "; expected F32 ", to_string(shape));
  };
  using State = typename optim::AdamW<D, T, S>::StateTensor;
  optimizer.for_each_state([&](const State& state) {
    const io::StoredTensor* tensor = file.find(state.name);
    if (tensor == nullptr) fail<FormatError>(path.native(), ": the tensor ", state.name, " is missing");
    expect(*tensor, state.shape);
  });
  optimizer.for_each_state([&](const State& state) {
    if (state.own.empty()) return;
    const auto begin = static_cast<std::size_t>(state.begins[static_cast<std::size_t>(optimizer.rank())]);
    const auto size = static_cast<std::size_t>(state.own.size());
    const auto bytes = file.find(state.name)->bytes.subspan(begin * sizeof(float), size * sizeof(float));
    const View<S, std::byte> target(reinterpret_cast<std::byte*>(state.own.data()), std::ssize(bytes));
    copy_from_host<S, std::byte>(dev, bytes, target);
  });
  optimizer.set_updates(updates);
  for (const auto& entry : optimizer.params().entries()) {
    const io::StoredTensor* tensor = file.find(entry.name + ".step");
    float count = static_cast<float>(updates);
    if (tensor != nullptr) {
      expect(*tensor, {1});
      std::memcpy(&count, tensor->bytes.data(), sizeof count);
      if (!(count >= 0 && count <= static_cast<float>(updates) && count == std::floor(count)))
        fail<FormatError>(path.native(), ": the tensor ", tensor->name, " holds ", count,
                          "; expected a whole number up to ", updates, ", the updates of the whole run");
    }
    optimizer.set_since(entry, updates - static_cast<Index>(count));
  }
  dev.synchronize();  // the file is read no more
}

}  // namespace lora::run
