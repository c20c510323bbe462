#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lora/ascend/runtime/operand.hpp"
#include "lora/ascend/runtime/operators.hpp"
#include "lora/tensor/arena.hpp"

namespace lora::ascend {

namespace detail {

/// What a caller hands to `launch`, on its way into an argument of the vendor's.
template <class Value>
struct From {
  const Objects& objects;
  const Value& value;
};

inline aclTensor* made(const Objects& objects, const Operand& operand) {
  const std::int64_t storage = operand.extent();
  aclTensor* const tensor =
      objects.aclCreateTensor(operand.dims.data(), operand.rank, operand.type, operand.strides.data(), 0, ACL_FORMAT_ND,
                              &storage, 1, operand.data);
  if (tensor == nullptr) fail<DeviceError>("[ascend] no tensor can be made of ", operand.text());
  return tensor;
}

inline void destroy(const Objects& objects, const aclTensor* tensor) { (void)objects.aclDestroyTensor(tensor); }
inline void destroy(const Objects& objects, const aclScalar* scalar) { (void)objects.aclDestroyScalar(scalar); }
inline void destroy(const Objects& objects, const aclIntArray* array) { (void)objects.aclDestroyIntArray(array); }
/// With its tensors, which it owns.
inline void destroy(const Objects& objects, const aclTensorList* list) { (void)objects.aclDestroyTensorList(list); }

inline aclTensor* object_of(const From<Operand>& from) { return made(from.objects, from.value); }
template <class T>
aclTensor* object_of(const From<View<Device, T>>& from) {
  return made(from.objects, Operand(from.value));
}
inline std::nullptr_t object_of(const From<NoOperand>&) { return nullptr; }
inline aclScalar* object_of(const From<Scalar>& from) {
  auto value = static_cast<float>(from.value.value);
  return from.objects.aclCreateScalar(&value, ACL_FLOAT);
}
inline aclScalar* object_of(const From<WideScalar>& from) {
  double value = from.value.value;
  return from.objects.aclCreateScalar(&value, ACL_DOUBLE);
}
inline aclIntArray* object_of(const From<std::vector<std::int64_t>>& from) {
  return from.objects.aclCreateIntArray(from.value.data(), from.value.size());
}
inline aclTensorList* object_of(const From<std::vector<Operand>>& from) {
  std::vector<const aclTensor*> tensors;
  const auto destroy_all = [&] {
    for (const aclTensor* tensor : tensors) destroy(from.objects, tensor);
  };
  try {
    for (const Operand& operand : from.value) tensors.push_back(made(from.objects, operand));
  } catch (...) {
    destroy_all();
    throw;
  }
  aclTensorList* const list = from.objects.aclCreateTensorList(tensors.data(), tensors.size());
  if (list == nullptr) destroy_all();
  return list;
}

/// An argument as the vendor's functions take it: an object that is destroyed once the operator has been queued, or a
/// value.
template <class Declared>
class Given {
 public:
  template <class Value>
  Given(const From<Value>& from) : objects_(from.objects), object_(object_of(from)) {}
  Given(const Given&) = delete;
  Given& operator=(const Given&) = delete;
  ~Given() {
    if (object_ != nullptr) destroy(objects_, object_);
  }
  Declared get() const { return object_; }

 private:
  const Objects& objects_;
  std::remove_const_t<std::remove_pointer_t<Declared>>* object_;
};

template <class Declared>
  requires(std::is_arithmetic_v<Declared> || std::is_enum_v<Declared>)
class Given<Declared> {
 public:
  template <class Value>
  Given(const From<Value>& from) : value_(from.value) {}
  Declared get() const { return value_; }

 private:
  Declared value_;
};

/// The vendor's texts are not const; they are only read.
template <>
class Given<char*> {
 public:
  Given(const From<const char*>& from) : text_(const_cast<char*>(from.value)) {}
  char* get() const { return text_; }

 private:
  char* text_;
};

// What messages say of an argument; nothing of what is no tensor.
inline std::string text_of(const Operand& operand) { return operand.text(); }
template <class T>
std::string text_of(View<Device, T> view) {
  return Operand(view).text();
}
inline std::string text_of(const std::vector<Operand>& operands) {
  std::string text;
  for (const Operand& operand : operands) text += concat(text.empty() ? "" : ", ", operand.text());
  return text;
}
template <class Other>
std::string text_of(const Other&) {
  return {};
}

[[noreturn, gnu::cold]] inline void fail_launch(Device& dev, std::string_view name, std::span<const std::string> texts,
                                                aclnnStatus status) {
  std::string operands;
  for (const std::string& text : texts)
    if (!text.empty()) operands += concat(operands.empty() ? "" : ", ", text);
  fail<DeviceError>("[ascend] NPU ", dev.settings().id, ": the operator ", name, " of ", operands, ": ",
                    dev.reason_of(status),
                    status == ACLNN_ERR_INNER_OPP_KERNEL_PKG_NOT_FOUND
                        ? "; install the toolkit's operator package for this kind of NPU"
                        : "");
}

}  // namespace detail

/// Whether an operator takes such arguments, as its first phase tells; nothing is queued.
template <class... Declared, class... Arguments>
bool takes(Device& dev, const Operator<Declared...>& one, const Arguments&... arguments) {
  dev.enter();
  const Objects& objects = dev.toolkit().objects;
  const std::tuple<detail::Given<Declared>...> given(detail::From<Arguments>{objects, arguments}...);
  std::uint64_t bytes = 0;
  aclOpExecutor* executor = nullptr;
  const aclnnStatus status =
      std::apply([&](const auto&... each) { return one.sizes(each.get()..., &bytes, &executor); }, given);
  if (status == 0) (void)objects.aclDestroyAclOpExecutor(executor);
  if (ends_work(status)) dev.check(status, one.name);
  return status == 0;
}

/// Queues an operator in the compute stream. Its workspace is scratch of the arena, which the work after it may use
/// again since one stream runs it all.
template <class... Declared, class... Arguments>
void launch(Device& dev, const Operator<Declared...>& one, const Arguments&... arguments) {
  static_assert(sizeof...(Declared) == sizeof...(Arguments));
  dev.enter();
  const Objects& objects = dev.toolkit().objects;
  const auto check = [&](aclnnStatus status) {
    if (status == 0) return;
    const std::string texts[] = {detail::text_of(arguments)...};
    detail::fail_launch(dev, one.name, texts, status);
  };
  const std::tuple<detail::Given<Declared>...> given(detail::From<Arguments>{objects, arguments}...);
  std::uint64_t bytes = 0;
  aclOpExecutor* executor = nullptr;
  check(std::apply([&](const auto&... each) { return one.sizes(each.get()..., &bytes, &executor); }, given));
  const Arena::Scope scope(dev.arena());
  void* workspace = nullptr;
  try {
    if (bytes > 0) workspace = dev.arena().scratch(bytes);
  } catch (...) {
    (void)objects.aclDestroyAclOpExecutor(executor);  // it would have ended with the operator
    throw;
  }
  check(one.run(workspace, bytes, executor, dev.compute_stream()));
}

}  // namespace lora::ascend
