/// libnnopbase.so: descriptions of operands, and what may be done with an executor between the phases.
#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <string>

#include "engine.hpp"
#include "meta.hpp"
#include "numbers.hpp"

using namespace stand_in;

namespace {

/// What was destroyed last keeps its address for a while, so that a second destruction is seen as one.
template <class T>
void bury(const T* object) {
  static std::mutex mutex;
  static auto& last = *new std::deque<const T*>;
  const std::lock_guard<std::mutex> lock(mutex);
  last.push_back(object);
  if (last.size() <= 256) return;
  delete last.front();
  last.pop_front();
}

template <class T>
T* born(Kind kind, T* object) {
  engine().made(kind, object);
  return object;
}

template <class T>
int destroyed(Kind kind, const T* object, const char* caller) {
  if (object == nullptr) return 0;
  if (!engine().gone(kind, object)) {
    engine().fault(std::string(caller) + ": what is destroyed is no such object, or was destroyed before");
    return engine().failure(ACLNN_ERR_PARAM_INVALID, std::string(caller) + ": no such object");
  }
  bury(object);
  return 0;
}

int refused(const char* caller, bool null) {
  return engine().failure(null ? ACLNN_ERR_PARAM_NULLPTR : ACLNN_ERR_PARAM_INVALID,
                          std::string(caller) + (null ? ": null" : ": not allowed"));
}

/// The caller frees it with delete[].
int handed_out(const char* caller, const Dims& values, int64_t** out, uint64_t* count) {
  if (out == nullptr || count == nullptr) return refused(caller, true);
  *count = values.size();
  *out = new int64_t[std::max<std::size_t>(values.size(), 1)];
  std::copy(values.begin(), values.end(), *out);
  return 0;
}

template <class T>
bool known(Kind kind, const T* object, const char* caller) {
  if (object != nullptr && engine().lives(kind, object)) return true;
  if (object != nullptr) engine().fault(std::string(caller) + ": an object that was destroyed");
  return false;
}

/// Changes the address of the operands for which the predicate holds.
int readdress(const char* caller, aclOpExecutor* executor, void* address,
              const std::function<bool(const Operand&)>& chosen) {
  if (executor == nullptr || address == nullptr) return refused(caller, true);
  if (!known(Kind::executor, executor, caller) || !executor->repeatable) return refused(caller, false);
  bool any = false;
  for (Operand& operand : executor->plan.operands) {
    if (!chosen(operand)) continue;
    operand.base = static_cast<unsigned char*>(address);
    any = true;
  }
  return any ? 0 : refused(caller, false);
}

/// The operand at a place among those that are read, or written, or all.
int readdress(const char* caller, aclOpExecutor* executor, size_t index, void* address, bool inputs, bool outputs) {
  if (executor == nullptr || address == nullptr) return refused(caller, true);
  if (!known(Kind::executor, executor, caller)) return refused(caller, false);
  const Operand* found = nullptr;
  std::size_t at = 0;
  for (const Operand& operand : executor->plan.operands) {
    const bool counts = (inputs && outputs) || (inputs && operand.reads) || (outputs && operand.writes);
    if (counts && at++ == index) found = &operand;
  }
  return readdress(caller, executor, address, [found](const Operand& operand) { return &operand == found; });
}

int readdress_list(const char* caller, aclOpExecutor* executor, size_t list, size_t place, void* address) {
  return readdress(caller, executor, address,
                   [&](const Operand& operand) { return operand.list == list && operand.place == place; });
}

}  // namespace

extern "C" {

aclTensor* aclCreateTensor(const int64_t* viewDims, uint64_t viewDimsNum, aclDataType dataType, const int64_t* stride,
                           int64_t offset, aclFormat format, const int64_t* storageDims, uint64_t storageDimsNum,
                           void* tensorData) {
  if ((viewDims == nullptr && viewDimsNum > 0) || (storageDims == nullptr && storageDimsNum > 0)) {
    engine().failure(ACLNN_ERR_PARAM_NULLPTR, "aclCreateTensor: no dimensions");
    return nullptr;
  }
  auto* tensor = new aclTensor;
  tensor->shape.assign(viewDims, viewDims + viewDimsNum);
  tensor->strides.assign(viewDimsNum, 1);
  if (stride != nullptr) {
    tensor->strides.assign(stride, stride + viewDimsNum);
  } else {
    for (std::size_t i = viewDimsNum; i-- > 1;) tensor->strides[i - 1] = tensor->strides[i] * tensor->shape[i];
  }
  tensor->storage.assign(storageDims, storageDims + storageDimsNum);
  tensor->offset = offset;
  tensor->type = dataType;
  tensor->format = format;
  tensor->data = static_cast<unsigned char*>(tensorData);
  return born(Kind::tensor, tensor);
}

int aclDestroyTensor(const aclTensor* tensor) {
  if (tensor != nullptr && engine().lives(Kind::tensor, tensor) && tensor->listed) {
    engine().fault("aclDestroyTensor: a list owns the tensor");
    return refused("aclDestroyTensor", false);
  }
  return destroyed(Kind::tensor, tensor, "aclDestroyTensor");
}

aclScalar* aclCreateScalar(void* value, aclDataType dataType) {
  const std::size_t size = size_of(dataType);
  if (value == nullptr || size == 0) {
    engine().failure(ACLNN_ERR_PARAM_NULLPTR, "aclCreateScalar: no value, or an unknown type");
    return nullptr;
  }
  auto* scalar = new aclScalar;
  scalar->type = dataType;
  std::memcpy(scalar->value, value, size);
  return born(Kind::scalar, scalar);
}

int aclDestroyScalar(const aclScalar* scalar) {
  if (scalar != nullptr && engine().lives(Kind::scalar, scalar) && scalar->listed) {
    engine().fault("aclDestroyScalar: a list owns the scalar");
    return refused("aclDestroyScalar", false);
  }
  return destroyed(Kind::scalar, scalar, "aclDestroyScalar");
}

aclIntArray* aclCreateIntArray(const int64_t* value, uint64_t size) {
  if (value == nullptr && size > 0) return nullptr;
  return born(Kind::int_array, new aclIntArray{{value, value + size}});
}
int aclDestroyIntArray(const aclIntArray* array) { return destroyed(Kind::int_array, array, "aclDestroyIntArray"); }

aclFloatArray* aclCreateFloatArray(const float* value, uint64_t size) {
  if (value == nullptr && size > 0) return nullptr;
  return born(Kind::float_array, new aclFloatArray{{value, value + size}});
}
int aclDestroyFloatArray(const aclFloatArray* array) {
  return destroyed(Kind::float_array, array, "aclDestroyFloatArray");
}

aclBoolArray* aclCreateBoolArray(const bool* value, uint64_t size) {
  if (value == nullptr && size > 0) return nullptr;
  return born(Kind::bool_array, new aclBoolArray{{value, value + size}});
}
int aclDestroyBoolArray(const aclBoolArray* array) { return destroyed(Kind::bool_array, array, "aclDestroyBoolArray"); }

aclTensorList* aclCreateTensorList(const aclTensor* const* value, uint64_t size) {
  if (value == nullptr && size > 0) return nullptr;
  auto* list = new aclTensorList;
  for (uint64_t i = 0; i < size; ++i) {
    auto* tensor = const_cast<aclTensor*>(value[i]);
    if (tensor != nullptr && engine().lives(Kind::tensor, tensor)) {
      if (tensor->listed) engine().fault("aclCreateTensorList: another list owns a tensor");
      tensor->listed = true;
    } else if (tensor != nullptr) {
      engine().fault("aclCreateTensorList: a tensor that was destroyed");
    }
    list->tensors.push_back(tensor);
  }
  return born(Kind::tensor_list, list);
}

int aclDestroyTensorList(const aclTensorList* array) {
  if (array != nullptr && engine().lives(Kind::tensor_list, array)) {
    for (aclTensor* tensor : array->tensors) {
      if (tensor == nullptr) continue;
      if (engine().lives(Kind::tensor, tensor)) tensor->listed = false;
      destroyed(Kind::tensor, static_cast<const aclTensor*>(tensor), "aclDestroyTensorList");
    }
  }
  return destroyed(Kind::tensor_list, array, "aclDestroyTensorList");
}

aclScalarList* aclCreateScalarList(const aclScalar* const* value, uint64_t size) {
  if (value == nullptr && size > 0) return nullptr;
  auto* list = new aclScalarList;
  for (uint64_t i = 0; i < size; ++i) {
    auto* scalar = const_cast<aclScalar*>(value[i]);
    if (scalar != nullptr && engine().lives(Kind::scalar, scalar)) scalar->listed = true;
    list->scalars.push_back(scalar);
  }
  return born(Kind::scalar_list, list);
}

int aclDestroyScalarList(const aclScalarList* array) {
  if (array != nullptr && engine().lives(Kind::scalar_list, array)) {
    for (aclScalar* scalar : array->scalars) {
      if (scalar == nullptr) continue;
      if (engine().lives(Kind::scalar, scalar)) scalar->listed = false;
      destroyed(Kind::scalar, static_cast<const aclScalar*>(scalar), "aclDestroyScalarList");
    }
  }
  return destroyed(Kind::scalar_list, array, "aclDestroyScalarList");
}

int aclGetViewShape(const aclTensor* tensor, int64_t** viewDims, uint64_t* viewDimsNum) {
  if (!known(Kind::tensor, tensor, "aclGetViewShape")) return refused("aclGetViewShape", true);
  return handed_out("aclGetViewShape", tensor->shape, viewDims, viewDimsNum);
}
int aclGetStorageShape(const aclTensor* tensor, int64_t** storageDims, uint64_t* storageDimsNum) {
  if (!known(Kind::tensor, tensor, "aclGetStorageShape")) return refused("aclGetStorageShape", true);
  return handed_out("aclGetStorageShape", tensor->storage, storageDims, storageDimsNum);
}
int aclGetViewStrides(const aclTensor* tensor, int64_t** stridesValue, uint64_t* stridesNum) {
  if (!known(Kind::tensor, tensor, "aclGetViewStrides")) return refused("aclGetViewStrides", true);
  return handed_out("aclGetViewStrides", tensor->strides, stridesValue, stridesNum);
}
int aclGetViewOffset(const aclTensor* tensor, int64_t* offset) {
  if (!known(Kind::tensor, tensor, "aclGetViewOffset") || offset == nullptr) return refused("aclGetViewOffset", true);
  *offset = tensor->offset;
  return 0;
}
int aclGetFormat(const aclTensor* tensor, aclFormat* format) {
  if (!known(Kind::tensor, tensor, "aclGetFormat") || format == nullptr) return refused("aclGetFormat", true);
  *format = tensor->format;
  return 0;
}
int aclGetDataType(const aclTensor* tensor, aclDataType* dataType) {
  if (!known(Kind::tensor, tensor, "aclGetDataType") || dataType == nullptr) return refused("aclGetDataType", true);
  *dataType = tensor->type;
  return 0;
}
int aclGetIntArraySize(const aclIntArray* array, uint64_t* size) {
  if (!known(Kind::int_array, array, "aclGetIntArraySize") || size == nullptr)
    return refused("aclGetIntArraySize", true);
  *size = array->values.size();
  return 0;
}
int aclGetFloatArraySize(const aclFloatArray* array, uint64_t* size) {
  if (!known(Kind::float_array, array, "aclGetFloatArraySize") || size == nullptr)
    return refused("aclGetFloatArraySize", true);
  *size = array->values.size();
  return 0;
}
int aclGetBoolArraySize(const aclBoolArray* array, uint64_t* size) {
  if (!known(Kind::bool_array, array, "aclGetBoolArraySize") || size == nullptr)
    return refused("aclGetBoolArraySize", true);
  *size = array->values.size();
  return 0;
}
int aclGetTensorListSize(const aclTensorList* tensorList, uint64_t* size) {
  if (!known(Kind::tensor_list, tensorList, "aclGetTensorListSize") || size == nullptr)
    return refused("aclGetTensorListSize", true);
  *size = tensorList->tensors.size();
  return 0;
}
int aclGetScalarListSize(const aclScalarList* scalarList, uint64_t* size) {
  if (!known(Kind::scalar_list, scalarList, "aclGetScalarListSize") || size == nullptr)
    return refused("aclGetScalarListSize", true);
  *size = scalarList->scalars.size();
  return 0;
}
int aclSetRawTensorAddr(aclTensor* tensor, void* addr) {
  if (!known(Kind::tensor, tensor, "aclSetRawTensorAddr")) return refused("aclSetRawTensorAddr", true);
  tensor->data = static_cast<unsigned char*>(addr);
  return 0;
}
int aclGetRawTensorAddr(const aclTensor* tensor, void** addr) {
  if (!known(Kind::tensor, tensor, "aclGetRawTensorAddr") || addr == nullptr)
    return refused("aclGetRawTensorAddr", true);
  *addr = tensor->data;
  return 0;
}

int aclSetAclOpExecutorRepeatable(aclOpExecutor* executor) {
  if (!known(Kind::executor, executor, "aclSetAclOpExecutorRepeatable"))
    return refused("aclSetAclOpExecutorRepeatable", true);
  executor->repeatable = true;
  return 0;
}
int aclDestroyAclOpExecutor(aclOpExecutor* executor) {
  return destroyed(Kind::executor, static_cast<const aclOpExecutor*>(executor), "aclDestroyAclOpExecutor");
}
int aclSetTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor*, void* addr) {
  return readdress("aclSetTensorAddr", executor, index, addr, true, true);
}
int aclSetInputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor*, void* addr) {
  return readdress("aclSetInputTensorAddr", executor, index, addr, true, false);
}
int aclSetOutputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor*, void* addr) {
  return readdress("aclSetOutputTensorAddr", executor, index, addr, false, true);
}
int aclSetDynamicTensorAddr(aclOpExecutor* executor, size_t irIndex, const size_t relativeIndex, aclTensorList*,
                            void* addr) {
  return readdress_list("aclSetDynamicTensorAddr", executor, irIndex, relativeIndex, addr);
}
int aclSetDynamicInputTensorAddr(aclOpExecutor* executor, size_t irIndex, const size_t relativeIndex, aclTensorList*,
                                 void* addr) {
  return readdress_list("aclSetDynamicInputTensorAddr", executor, irIndex, relativeIndex, addr);
}
int aclSetDynamicOutputTensorAddr(aclOpExecutor* executor, size_t irIndex, const size_t relativeIndex, aclTensorList*,
                                  void* addr) {
  return readdress_list("aclSetDynamicOutputTensorAddr", executor, irIndex, relativeIndex, addr);
}

int aclnnInit(const char*) { return 0; }
int aclnnFinalize(void) { return 0; }

}  // extern "C"
