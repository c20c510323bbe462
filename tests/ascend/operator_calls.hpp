#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ascend/foreign/cann.h"
#include "ascend/stand_in/stand_in.h"
#include "lora/core/error.hpp"
#include "lora/core/scalar.hpp"
#include "lora/io/formats/json.hpp"
#include "lora/io/formats/safetensors.hpp"

/// Calls of the vendor's operators out of files: tests/make/ascend_operators.py says how these are to be read.
namespace operator_calls {

using namespace lora;

using io::Json;
using Dims = std::vector<std::int64_t>;
using Bytes = std::vector<std::byte>;

/// An argument of phase 1, of whatever C type.
struct Argument {
  void* object = nullptr;
  std::int64_t integer = 0;
  double number = 0;
  std::string text;
};

template <class T>
T as(Argument& argument) {
  if constexpr (std::is_same_v<T, char*>) {
    return argument.text.data();
  } else if constexpr (std::is_pointer_v<T>) {
    return static_cast<T>(argument.object);
  } else if constexpr (std::is_same_v<T, bool>) {
    return argument.integer != 0;
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(argument.number);
  } else {
    return static_cast<T>(argument.integer);
  }
}

struct Operator {
  std::size_t arguments = 0;
  std::function<int(std::vector<Argument>&, std::uint64_t*, aclOpExecutor**)> prepare;
  int (*execute)(void*, std::uint64_t, aclOpExecutor*, aclrtStream) = nullptr;
};

template <class... Parameters>
Operator described(int (*prepare)(Parameters...), int (*execute)(void*, std::uint64_t, aclOpExecutor*, aclrtStream)) {
  constexpr std::size_t count = sizeof...(Parameters) - 2;
  const auto call = [prepare](std::vector<Argument>& arguments, std::uint64_t* size, aclOpExecutor** executor) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return prepare(as<std::tuple_element_t<I, std::tuple<Parameters...>>>(arguments.at(I))..., size, executor);
    }(std::make_index_sequence<count>());
  };
  return {count, call, execute};
}

/// By their names.
inline const std::map<std::string, Operator>& all_operators() {
#define LORA_ENTRY(op, ...) {"aclnn" #op, described(aclnn##op##GetWorkspaceSize, aclnn##op)},
  static const std::map<std::string, Operator> all = {CANN_OPERATORS(LORA_ENTRY)};
#undef LORA_ENTRY
  return all;
}

/// Breaches of the interface that the stand-in saw.
inline std::string faults() {
  char text[2000] = "";
  return standInTakeFaults(text, sizeof text) == 0 ? "" : text;
}

/// Device 0 and a stream on it.
class Device {
 public:
  Device() {
    REQUIRE(aclInit(nullptr) == ACL_SUCCESS);
    REQUIRE(aclrtSetDevice(0) == ACL_SUCCESS);
    REQUIRE(aclrtCreateStream(&stream) == ACL_SUCCESS);
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() {
    CHECK(aclrtDestroyStream(stream) == ACL_SUCCESS);
    CHECK(aclrtResetDevice(0) == ACL_SUCCESS);
    CHECK(aclFinalize() == ACL_SUCCESS);
    CHECK(faults() == "");  // what was not destroyed is one
  }

  aclrtStream stream = nullptr;
};

inline std::string recent_error() {
  const char* text = aclGetRecentErrMsg();
  return text == nullptr ? "no text" : text;
}

struct Type {
  aclDataType number;
  std::size_t bytes;
};

inline Type type_named(const std::string& name) {
  static const std::map<std::string, Type> all = {
      {"FLOAT", {ACL_FLOAT, 4}},      {"FLOAT16", {ACL_FLOAT16, 2}}, {"BF16", {ACL_BF16, 2}},
      {"INT8", {aclDataType(2), 1}},  {"INT32", {ACL_INT32, 4}},     {"UINT8", {aclDataType(4), 1}},
      {"INT16", {aclDataType(6), 2}}, {"INT64", {ACL_INT64, 8}},     {"DOUBLE", {aclDataType(11), 8}},
      {"BOOL", {aclDataType(12), 1}},
  };
  return all.at(name);
}

template <class T>
T loaded(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

inline double number_at(const std::byte* from, const std::string& type) {
  if (type == "FLOAT") return static_cast<double>(loaded<float>(from));
  if (type == "FLOAT16") return static_cast<double>(static_cast<float>(loaded<f16>(from)));
  if (type == "BF16") return static_cast<double>(static_cast<float>(loaded<bf16>(from)));
  if (type == "DOUBLE") return loaded<double>(from);
  if (type == "INT32") return loaded<std::int32_t>(from);
  if (type == "INT16") return loaded<std::int16_t>(from);
  if (type == "INT8") return loaded<std::int8_t>(from);
  if (type == "INT64") return static_cast<double>(loaded<std::int64_t>(from));
  return loaded<std::uint8_t>(from);
}

/// The distance to the next number of that size.
inline double unit(double value, const std::string& type) {
  const int digits = type == "FLOAT" ? 23 : type == "FLOAT16" ? 10 : type == "BF16" ? 7 : 52;
  return std::ldexp(std::fabs(value), -digits);
}

inline constexpr std::byte kGap{0xA5};  // NaN in no type: it must neither be read nor written

/// A tensor of a case: where its elements lie, in memory of the device.
class Placed {
 public:
  Placed(const Json& json, const io::Safetensors& file, const std::string& name)
      : json_(json), file_(file), name_(name), type_(json.at("dtype").get<std::string>()) {
    shape_ = json.at("shape").get<Dims>();
    count_ = 1;
    for (const std::int64_t size : shape_) count_ *= size;
    strides_ = Dims(shape_.size(), 1);
    for (std::size_t i = shape_.size(); i-- > 1;) strides_[i - 1] = strides_[i] * shape_[i];
    if (json.contains("strides")) {
      strides_ = json.at("strides").get<Dims>();
      offset_ = json.at("offset").get<std::int64_t>();
      storage_ = json.at("storage").get<std::int64_t>();
    } else {
      storage_ = count_;
    }
    before_.assign(static_cast<std::size_t>(storage_) * bytes(), kGap);
    if (json.contains("in")) fill();
    if (before_.empty()) return;
    REQUIRE(aclrtMalloc(&memory_, before_.size() + 64, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_SUCCESS);
    REQUIRE(aclrtMemcpy(memory_, before_.size(), before_.data(), before_.size(), ACL_MEMCPY_HOST_TO_DEVICE) ==
            ACL_SUCCESS);
  }
  Placed(const Placed&) = delete;
  Placed& operator=(const Placed&) = delete;
  ~Placed() {
    if (memory_ != nullptr) aclrtFree(memory_);
  }

  /// What a call is to be refused for.
  enum class Flaw { none, type, kind, mix, shape, address, gaps };

  aclTensor* tensor(Flaw flaw = Flaw::none) const {
    Dims shape = shape_, strides = strides_;
    std::int64_t storage = storage_;
    if (flaw == Flaw::shape) {  // enough memory for one more in the last dimension would be a part of the flaw
      shape.empty() ? shape.push_back(2) : void(++shape.back());
      strides = Dims(shape.size(), 1);
      for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
      storage = 1;
      for (const std::int64_t size : shape) storage *= size;
    }
    if (flaw == Flaw::gaps) {
      for (std::int64_t& stride : strides) stride *= 2;
      storage *= 2;
    }
    auto* memory = static_cast<std::byte*>(memory_);
    aclTensor* made =
        aclCreateTensor(shape.data(), shape.size(), type(flaw), strides.data(), offset_, ACL_FORMAT_ND, &storage, 1,
                        flaw == Flaw::address && memory != nullptr ? memory + bytes() : memory);
    REQUIRE(made != nullptr);
    return made;
  }

  const Json& json() const { return json_; }
  std::int64_t count() const { return count_; }

  /// Compares what lies in memory now.
  void check() const {
    if (!json_.contains("want") || before_.empty()) return;
    Bytes after(before_.size());
    REQUIRE(aclrtMemcpy(after.data(), after.size(), memory_, after.size(), ACL_MEMCPY_DEVICE_TO_HOST) == ACL_SUCCESS);
    const io::StoredTensor& want = *file_.find(json_.at("want").get<std::string>());
    const bool exact = !json_.contains("tolerance");
    const double tolerance = exact ? 0 : json_.at("tolerance").get<double>();
    std::vector<bool> ours(static_cast<std::size_t>(storage_), false);
    std::string wrong;
    std::int64_t wrongs = 0;
    each(want, [&](std::int64_t place, std::int64_t number, const std::byte* expected) {
      ours[static_cast<std::size_t>(place)] = true;
      const std::byte* found = after.data() + static_cast<std::size_t>(place) * bytes();
      const double x = number_at(found, type_), y = number_at(expected, type_);
      bool equal = x == y || (std::isnan(x) && std::isnan(y));
      if (type_ == "INT64") equal = std::memcmp(found, expected, bytes()) == 0;
      if (!exact && std::isfinite(y)) equal = std::fabs(x - y) <= unit(y, type_) + tolerance;
      if (equal || wrongs++ > 0) return;
      wrong = concat("element ", number, ": ", x, " and not ", y, " ± ", unit(y, type_) + tolerance);
    });
    for (std::size_t i = 0; i < ours.size(); ++i) {
      if (ours[i] || std::equal(after.begin() + at(i), after.begin() + at(i + 1), before_.begin() + at(i))) continue;
      wrong = concat("a place between the elements was written, ", i);
      ++wrongs;
    }
    INFO(name_);
    CHECK_MESSAGE(wrongs == 0, wrong, ", ", wrongs, " of ", count_);
  }

 private:
  std::size_t bytes() const { return type_named(type_).bytes; }
  aclDataType type(Flaw flaw) const {
    const bool floating = type_ == "FLOAT" || type_ == "FLOAT16" || type_ == "BF16";
    if (flaw == Flaw::type) return ACL_STRING;
    if (flaw == Flaw::kind) return floating ? ACL_INT32 : ACL_FLOAT;
    if (flaw == Flaw::mix && floating) return type_ == "FLOAT" ? ACL_BF16 : ACL_FLOAT;
    if (flaw == Flaw::mix) return type_ == "INT64" ? ACL_INT32 : ACL_INT64;
    return type_named(type_).number;
  }
  std::ptrdiff_t at(std::size_t element) const { return static_cast<std::ptrdiff_t>(element * bytes()); }

  /// Calls f(place in memory, number, bytes in the file) for each element. Dimensions of 1 of the file are expanded.
  template <class F>
  void each(const io::StoredTensor& stored, F f) const {
    const bool flat = static_cast<std::size_t>(stored.shape.rank()) != shape_.size();
    Dims index(shape_.size(), 0);
    for (std::int64_t number = 0; number < count_; ++number) {
      std::int64_t place = offset_, from = 0;
      for (std::size_t i = 0; i < shape_.size(); ++i) {
        place += index[i] * strides_[i];
        const std::int64_t size = flat ? shape_[i] : stored.shape[static_cast<int>(i)];
        from = from * size + (size == 1 ? 0 : index[i]);
      }
      f(place, number, stored.bytes.data() + static_cast<std::size_t>(from) * bytes());
      for (std::size_t i = shape_.size(); i-- > 0;) {
        if (++index[i] < shape_[i]) break;
        index[i] = 0;
      }
    }
  }

  void fill() {
    const auto source = json_.at("in").get<std::string>();
    if (source == "triu") {
      for (std::int64_t i = 0; i < count_; ++i)
        before_[static_cast<std::size_t>(i)] =
            std::byte{i % shape_[1] > i / shape_[1] ? std::uint8_t{1} : std::uint8_t{0}};
      return;
    }
    each(*file_.find(source), [&](std::int64_t place, std::int64_t, const std::byte* from) {
      std::memcpy(before_.data() + static_cast<std::size_t>(place) * bytes(), from, bytes());
    });
  }

  const Json& json_;
  const io::Safetensors& file_;
  std::string name_, type_;
  Dims shape_, strides_;
  std::int64_t offset_ = 0, storage_ = 0, count_ = 0;
  Bytes before_;
  void* memory_ = nullptr;
};

/// What a call is to have wrong.
struct Wrong {
  std::size_t argument = std::numeric_limits<std::size_t>::max();
  const Json* value = nullptr;  // in place of the argument
  Placed::Flaw flaw = Placed::Flaw::none;
};

/// A case, with its tensors in memory.
class Case {
 public:
  Case(const Json& json, const io::Safetensors& file)
      : name(json.at("name").get<std::string>()),
        op(all_operators().at(json.at("op").get<std::string>())),
        json_(json) {
    const Json& arguments = json.at("args");
    REQUIRE_MESSAGE(arguments.size() == op.arguments, name);
    tensors_.resize(arguments.size());
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const Json& argument = arguments[i];
      if (!argument.is_object()) continue;
      const auto add = [&](const Json& tensor) {
        tensors_[i].push_back(std::make_unique<Placed>(tensor, file, concat(name, ", argument ", i)));
      };
      if (argument.contains("shape")) add(argument);
      if (argument.contains("list"))
        for (const Json& tensor : argument.at("list")) add(tensor);
    }
  }

  const std::string name;
  const Operator& op;

  const std::vector<std::unique_ptr<Placed>>& tensors(std::size_t argument) const { return tensors_[argument]; }
  const Json& argument(std::size_t i) const { return json_.at("args")[i]; }

  /// Phase 1. Its objects live until `destroy` is called.
  int prepare(std::uint64_t* size, aclOpExecutor** executor, const Wrong& wrong = {}) {
    std::vector<Argument> arguments(op.arguments);
    for (std::size_t i = 0; i < arguments.size(); ++i) arguments[i] = made(i, wrong.argument == i ? wrong : Wrong{});
    return op.prepare(arguments, size, executor);
  }

  void destroy() {
    for (const auto& end : ends_) CHECK(end() == ACL_SUCCESS);
    ends_.clear();
  }

  void run(aclrtStream stream) {
    std::uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    const int code = prepare(&size, &executor);
    CHECK_MESSAGE(code == ACL_SUCCESS, name, ": ", recent_error());
    if (code == ACL_SUCCESS) {
      void* workspace = nullptr;
      if (size > 0) REQUIRE(aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_SUCCESS);
      CHECK_MESSAGE(op.execute(workspace, size, executor, stream) == ACL_SUCCESS, name, ": ", recent_error());
      destroy();  // what was passed is not needed while the operator runs
      REQUIRE_MESSAGE(aclrtSynchronizeStream(stream) == ACL_SUCCESS, name, ": ", recent_error());
      if (workspace != nullptr) CHECK(aclrtFree(workspace) == ACL_SUCCESS);
      for (const auto& list : tensors_)
        for (const auto& tensor : list) tensor->check();
    }
    destroy();
    CHECK_MESSAGE(faults() == "", name);
  }

 private:
  Argument made(std::size_t i, const Wrong& wrong) {
    const Json& json = wrong.value != nullptr ? *wrong.value : argument(i);
    Argument result;
    if (json.is_number()) {
      result.number = json.get<double>();
      result.integer = json.is_number_integer() ? json.get<std::int64_t>() : 0;
    } else if (json.is_boolean()) {
      result.integer = json.get<bool>() ? 1 : 0;
    } else if (json.is_string()) {
      result.text = json.get<std::string>();
    } else if (json.is_object()) {
      result.object = object(i, json, wrong.flaw);
    }
    return result;
  }

  void* object(std::size_t i, const Json& json, Placed::Flaw flaw) {
    if (json.contains("shape")) {
      aclTensor* tensor = tensors_[i][0]->tensor(flaw);
      ends_.push_back([tensor] { return aclDestroyTensor(tensor); });
      return tensor;
    }
    if (json.contains("list")) {
      std::vector<aclTensor*> all;
      for (const auto& tensor : tensors_[i]) all.push_back(tensor->tensor(all.empty() ? flaw : Placed::Flaw::none));
      aclTensorList* list = aclCreateTensorList(all.data(), all.size());
      ends_.push_back([list] { return aclDestroyTensorList(list); });  // with the tensors in it
      return list;
    }
    if (json.contains("ints")) {
      const Dims values = json.at("ints").get<Dims>();
      aclIntArray* array = aclCreateIntArray(values.data(), values.size());
      ends_.push_back([array] { return aclDestroyIntArray(array); });
      return array;
    }
    if (json.contains("scalar")) {
      aclScalar* scalar = scalar_of(json);
      ends_.push_back([scalar] { return aclDestroyScalar(scalar); });
      return scalar;
    }
    const auto same = json.at("same").get<std::size_t>();
    return object(same, argument(same), flaw);
  }

  static aclScalar* scalar_of(const Json& json) {
    const Json& value = json.at("scalar");
    const double number = value.is_string() ? std::stod(value.get<std::string>()) : value.get<double>();
    const Type type = type_named(json.at("dtype").get<std::string>());
    std::byte bytes[8] = {};
    const auto put = [&](auto narrow) { std::memcpy(bytes, &narrow, sizeof narrow); };
    if (type.number == ACL_FLOAT) {
      put(static_cast<float>(number));
    } else if (type.number == ACL_FLOAT16) {
      put(f16(static_cast<float>(number)));
    } else if (type.number == ACL_INT32) {
      put(static_cast<std::int32_t>(number));
    } else {
      REQUIRE(type.number == ACL_INT64);
      put(static_cast<std::int64_t>(number));
    }
    aclScalar* scalar = aclCreateScalar(bytes, type.number);
    REQUIRE(scalar != nullptr);
    return scalar;
  }

  const Json& json_;
  std::vector<std::vector<std::unique_ptr<Placed>>> tensors_;
  std::vector<std::function<int()>> ends_;
};

}  // namespace operator_calls
