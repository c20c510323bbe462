#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "lora/ascend/runtime/library.hpp"
#include "lora/ascend/runtime/types.hpp"
#include "lora/core/error.hpp"

// What is called of AscendCL, the runtime of the vendor's toolkit (CANN), and of its objects for operators, as its
// headers declare it in version 8.1.

namespace lora::ascend {

/// Functions of the runtime, under the vendor's names.
struct Runtime {
  aclError (*aclInit)(const char* config_path) = nullptr;
  const char* (*aclGetRecentErrMsg)() = nullptr;
  const char* (*aclrtGetSocName)() = nullptr;
  aclError (*aclrtGetVersion)(std::int32_t* major, std::int32_t* minor, std::int32_t* patch) = nullptr;
  aclError (*aclrtGetDeviceCount)(std::uint32_t* count) = nullptr;
  aclError (*aclGetDeviceCapability)(std::uint32_t device, aclDeviceInfo info, std::int64_t* value) = nullptr;
  aclError (*aclrtSetDevice)(std::int32_t device) = nullptr;
  aclError (*aclrtResetDevice)(std::int32_t device) = nullptr;
  aclError (*aclrtGetCurrentContext)(aclrtContext* context) = nullptr;
  aclError (*aclrtSetCurrentContext)(aclrtContext context) = nullptr;
  aclError (*aclrtSetSysParamOpt)(aclSysParamOpt option, std::int64_t value) = nullptr;
  aclError (*aclrtCtxSetSysParamOpt)(aclSysParamOpt option, std::int64_t value) = nullptr;
  aclError (*aclrtSetDeviceSatMode)(aclrtFloatOverflowMode mode) = nullptr;
  aclError (*aclrtGetMemInfo)(aclrtMemAttr kind, std::size_t* free, std::size_t* total) = nullptr;

  aclError (*aclrtMallocAlign32)(void** memory, std::size_t bytes, aclrtMemMallocPolicy policy) = nullptr;
  aclError (*aclrtFree)(void* memory) = nullptr;
  aclError (*aclrtMallocHost)(void** memory, std::size_t bytes) = nullptr;
  aclError (*aclrtFreeHost)(void* memory) = nullptr;
  aclError (*aclrtReserveMemAddress)(void** memory, std::size_t bytes, std::size_t alignment, void* expected,
                                     std::uint64_t flags) = nullptr;
  aclError (*aclrtReleaseMemAddress)(void* memory) = nullptr;
  aclError (*aclrtMallocPhysical)(aclrtDrvMemHandle* handle, std::size_t bytes, const aclrtPhysicalMemProp* property,
                                  std::uint64_t flags) = nullptr;
  aclError (*aclrtFreePhysical)(aclrtDrvMemHandle handle) = nullptr;
  aclError (*aclrtMapMem)(void* memory, std::size_t bytes, std::size_t offset, aclrtDrvMemHandle handle,
                          std::uint64_t flags) = nullptr;
  aclError (*aclrtUnmapMem)(void* memory) = nullptr;
  aclError (*aclrtMemcpyAsync)(void* target, std::size_t most, const void* source, std::size_t bytes,
                               aclrtMemcpyKind kind, aclrtStream stream) = nullptr;

  aclError (*aclrtCreateStream)(aclrtStream* stream) = nullptr;
  aclError (*aclrtSetStreamFailureMode)(aclrtStream stream, std::uint64_t mode) = nullptr;
  aclError (*aclrtDestroyStream)(aclrtStream stream) = nullptr;
  aclError (*aclrtDestroyStreamForce)(aclrtStream stream) = nullptr;
  aclError (*aclrtSynchronizeStreamWithTimeout)(aclrtStream stream, std::int32_t milliseconds) = nullptr;
  aclError (*aclrtStreamQuery)(aclrtStream stream, aclrtStreamStatus* status) = nullptr;
  aclError (*aclrtCreateEventExWithFlag)(aclrtEvent* event, std::uint32_t flags) = nullptr;
  aclError (*aclrtDestroyEvent)(aclrtEvent event) = nullptr;
  aclError (*aclrtRecordEvent)(aclrtEvent event, aclrtStream stream) = nullptr;
  aclError (*aclrtStreamWaitEvent)(aclrtStream stream, aclrtEvent event) = nullptr;
  aclError (*aclrtSynchronizeEventWithTimeout)(aclrtEvent event, std::int32_t milliseconds) = nullptr;
  aclError (*aclrtQueryEventStatus)(aclrtEvent event, aclrtEventRecordedStatus* status) = nullptr;
  aclError (*aclrtEventElapsedTime)(float* milliseconds, aclrtEvent begin, aclrtEvent end) = nullptr;

  /// f(name, pointer) for each of them.
  template <class F>
  void for_each(F&& f) {
    f("aclInit", aclInit);
    f("aclGetRecentErrMsg", aclGetRecentErrMsg);
    f("aclrtGetSocName", aclrtGetSocName);
    f("aclrtGetVersion", aclrtGetVersion);
    f("aclrtGetDeviceCount", aclrtGetDeviceCount);
    f("aclGetDeviceCapability", aclGetDeviceCapability);
    f("aclrtSetDevice", aclrtSetDevice);
    f("aclrtResetDevice", aclrtResetDevice);
    f("aclrtGetCurrentContext", aclrtGetCurrentContext);
    f("aclrtSetCurrentContext", aclrtSetCurrentContext);
    f("aclrtSetSysParamOpt", aclrtSetSysParamOpt);
    f("aclrtCtxSetSysParamOpt", aclrtCtxSetSysParamOpt);
    f("aclrtSetDeviceSatMode", aclrtSetDeviceSatMode);
    f("aclrtGetMemInfo", aclrtGetMemInfo);
    f("aclrtMallocAlign32", aclrtMallocAlign32);
    f("aclrtFree", aclrtFree);
    f("aclrtMallocHost", aclrtMallocHost);
    f("aclrtFreeHost", aclrtFreeHost);
    f("aclrtReserveMemAddress", aclrtReserveMemAddress);
    f("aclrtReleaseMemAddress", aclrtReleaseMemAddress);
    f("aclrtMallocPhysical", aclrtMallocPhysical);
    f("aclrtFreePhysical", aclrtFreePhysical);
    f("aclrtMapMem", aclrtMapMem);
    f("aclrtUnmapMem", aclrtUnmapMem);
    f("aclrtMemcpyAsync", aclrtMemcpyAsync);
    f("aclrtCreateStream", aclrtCreateStream);
    f("aclrtSetStreamFailureMode", aclrtSetStreamFailureMode);
    f("aclrtDestroyStream", aclrtDestroyStream);
    f("aclrtDestroyStreamForce", aclrtDestroyStreamForce);
    f("aclrtSynchronizeStreamWithTimeout", aclrtSynchronizeStreamWithTimeout);
    f("aclrtStreamQuery", aclrtStreamQuery);
    f("aclrtCreateEventExWithFlag", aclrtCreateEventExWithFlag);
    f("aclrtDestroyEvent", aclrtDestroyEvent);
    f("aclrtRecordEvent", aclrtRecordEvent);
    f("aclrtStreamWaitEvent", aclrtStreamWaitEvent);
    f("aclrtSynchronizeEventWithTimeout", aclrtSynchronizeEventWithTimeout);
    f("aclrtQueryEventStatus", aclrtQueryEventStatus);
    f("aclrtEventElapsedTime", aclrtEventElapsedTime);
  }

  /// "error 107001 (no such device)", with the vendor's own message where it has one. On the thread that met it.
  std::string describe(aclError error) const {
    const char* message = aclGetRecentErrMsg != nullptr ? aclGetRecentErrMsg() : nullptr;
    return message != nullptr ? concat("error ", error, " (", one_line(message), ")") : concat("error ", error);
  }

 private:
  /// The vendor's messages have several lines, and indentation.
  static std::string one_line(std::string_view text) {
    std::string line;
    bool gap = false;
    for (const char c : text) {
      const bool space = c == ' ' || c == '\n' || c == '\r' || c == '\t';
      if (!space && gap && !line.empty()) line += ' ';
      if (!space) line += c;
      gap = space;
    }
    return line;
  }
};

/// What to check when the runtime reports this error for an NPU.
constexpr std::string_view advice_of(aclError error) {
  return error == ACL_ERROR_RT_DEV_SETUP_ERROR
             ? "the usual causes are a driver and a toolkit of releases that don't match, or a card that another "
               "container holds: npu-smi info shows the driver's version, the card's health and who uses it"
             : "npu-smi info shows its health and who uses it; a card serves one container at a time";
}

/// Of the packages, for reports: nothing needs it, and other versions may not have it.
using aclsysGetCANNVersion = aclError(aclCANNPackageName name, aclCANNPackageVersion* version);

/// Functions that make what operators are given, under the vendor's names.
struct Objects {
  aclTensor* (*aclCreateTensor)(const std::int64_t* dims, std::uint64_t rank, aclDataType type,
                                const std::int64_t* strides, std::int64_t offset, aclFormat format,
                                const std::int64_t* storage_dims, std::uint64_t storage_rank, void* data) = nullptr;
  aclnnStatus (*aclDestroyTensor)(const aclTensor* tensor) = nullptr;
  aclScalar* (*aclCreateScalar)(void* value, aclDataType type) = nullptr;
  aclnnStatus (*aclDestroyScalar)(const aclScalar* scalar) = nullptr;
  aclIntArray* (*aclCreateIntArray)(const std::int64_t* values, std::uint64_t count) = nullptr;
  aclnnStatus (*aclDestroyIntArray)(const aclIntArray* array) = nullptr;
  aclTensorList* (*aclCreateTensorList)(const aclTensor* const* tensors, std::uint64_t count) = nullptr;
  aclnnStatus (*aclDestroyTensorList)(const aclTensorList* list) = nullptr;
  aclnnStatus (*aclDestroyAclOpExecutor)(aclOpExecutor* executor) = nullptr;

  template <class F>
  void for_each(F&& f) {
    f("aclCreateTensor", aclCreateTensor);
    f("aclDestroyTensor", aclDestroyTensor);
    f("aclCreateScalar", aclCreateScalar);
    f("aclDestroyScalar", aclDestroyScalar);
    f("aclCreateIntArray", aclCreateIntArray);
    f("aclDestroyIntArray", aclDestroyIntArray);
    f("aclCreateTensorList", aclCreateTensorList);
    f("aclDestroyTensorList", aclDestroyTensorList);
    f("aclDestroyAclOpExecutor", aclDestroyAclOpExecutor);
  }
};

/// Where the runtime is: in version 8's library or in the newer one's.
constexpr std::string_view runtime_libraries[] = {"libascendcl.so", "libacl_rt.so"};

/// Finds all functions of such a table; returns the first that is missing, or nothing.
template <class Table>
std::string load(Table& table, const Libraries& libraries) {
  std::string missing;
  table.for_each([&](const char* name, auto& function) {
    function = libraries.find<std::remove_pointer_t<std::remove_reference_t<decltype(function)>>>(name);
    if (function == nullptr && missing.empty()) missing = name;
  });
  return missing;
}

}  // namespace lora::ascend
