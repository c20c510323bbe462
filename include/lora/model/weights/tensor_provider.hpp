#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "lora/model/description/tensors.hpp"

namespace lora::model {

/// The numbers of one tensor.
struct ProvidedTensor {
  DType dtype = DType::f32;
  std::span<const std::byte> bytes{};
  std::shared_ptr<const void> owner{};  ///< keeps the bytes alive
  /// The number of heads whose rows lie as TensorInfo::gguf_heads says; 0 where rows are in order.
  Index permuted_heads = 0;
};

/// Where the numbers of a model's tensors come from: files, a random initialization, what training has left.
class TensorProvider {
 public:
  virtual ~TensorProvider() = default;
  virtual const Config& config() const = 0;
  /// A tensor of the config's description, in its shape.
  virtual ProvidedTensor provide(const TensorInfo& info) const = 0;
  /// To be called when everything was read. Throws FormatError for what belongs to no such model
  virtual void finish() const = 0;

 protected:
  TensorProvider() = default;
  TensorProvider(const TensorProvider&) = default;
  TensorProvider(TensorProvider&&) = default;
  TensorProvider& operator=(const TensorProvider&) = default;
  TensorProvider& operator=(TensorProvider&&) = default;
};

}  // namespace lora::model
