/// libascendcl.so: the vendor's runtime and the control functions.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>

#include "core.hpp"
#include "numbers.hpp"

using stand_in::Core;
using stand_in::Kind;

namespace {

Core& core() { return Core::get(); }

int invalid(const char* caller, const char* text) {
  return core().failure(ACL_ERROR_RT_PARAM_INVALID, std::string(caller) + ": " + text);
}

const std::string& soc() {
  static const std::string name = [] {
    const char* text = std::getenv("STAND_IN_SOC");
    return std::string(text != nullptr && *text != '\0' ? text : "Ascend910B3");
  }();
  return name;
}

}  // namespace

extern "C" {

// Starting and ending

int aclInit(const char*) { return core().init(); }
int aclFinalize(void) { return core().finalize(); }
const char* aclGetRecentErrMsg(void) { return core().last_text(); }
const char* aclrtGetSocName(void) { return soc() == "none" ? nullptr : soc().c_str(); }

int aclrtGetVersion(int32_t* majorVersion, int32_t* minorVersion, int32_t* patchVersion) {
  if (majorVersion == nullptr || minorVersion == nullptr || patchVersion == nullptr)
    return invalid("aclrtGetVersion", "null");
  *majorVersion = 1;
  *minorVersion = 13;
  *patchVersion = 0;
  return 0;
}

int aclsysGetCANNVersion(aclCANNPackageName name, aclCANNPackageVersion* version) {
  if (version == nullptr || name < ACL_PKG_NAME_CANN || name > ACL_PKG_NAME_DRIVER)
    return core().failure(ACL_ERROR_INVALID_PARAM, "aclsysGetCANNVersion: null or an unknown package");
  *version = {};
  std::strcpy(version->version, "8.1.RC1");
  std::strcpy(version->majorVersion, "8");
  std::strcpy(version->minorVersion, "1");
  std::strcpy(version->releaseVersion, "RC1");
  return 0;
}

int aclGetDeviceCapability(uint32_t deviceId, aclDeviceInfo deviceInfo, int64_t* value) {
  if (value == nullptr || static_cast<int>(deviceId) >= core().device_count())
    return core().failure(ACL_ERROR_INVALID_PARAM, "aclGetDeviceCapability: null or no such device");
  const bool small = soc().find("910B3") != std::string::npos || soc().find("910B4") != std::string::npos;
  switch (deviceInfo) {
    case ACL_DEVICE_INFO_AI_CORE_NUM:
      *value = small ? 20 : 24;
      return 0;
    case ACL_DEVICE_INFO_VECTOR_CORE_NUM:
      *value = small ? 40 : 48;
      return 0;
    case ACL_DEVICE_INFO_L2_SIZE:
      *value = std::int64_t{soc().find("910B4") != std::string::npos ? 96 : 192} << 20;
      return 0;
    default:
      return core().failure(ACL_ERROR_INVALID_PARAM, "aclGetDeviceCapability: unknown");
  }
}

size_t aclDataTypeSize(aclDataType dataType) { return stand_in::size_of(dataType); }
float aclFloat16ToFloat(aclFloat16 value) { return stand_in::from_half(value); }
aclFloat16 aclFloatToFloat16(float value) { return stand_in::to_half(static_cast<double>(value)); }

// Devices and contexts

int aclrtGetDeviceCount(uint32_t* count) {
  if (!core().initialized())
    return core().failure(ACL_ERROR_UNINITIALIZE, "aclrtGetDeviceCount: aclInit was not called");
  if (count == nullptr) return invalid("aclrtGetDeviceCount", "null");
  if (core().settings.devices < 0)
    return core().failure(ACL_ERROR_RT_DRV_INTERNAL_ERROR, "aclrtGetDeviceCount: the driver does not answer");
  *count = static_cast<uint32_t>(core().device_count());
  return 0;
}
int aclrtSetDevice(int32_t deviceId) { return core().set_device(deviceId); }
int aclrtResetDevice(int32_t deviceId) { return core().reset_device(deviceId, false); }
int aclrtResetDeviceForce(int32_t deviceId) { return core().reset_device(deviceId, true); }
int aclrtGetDevice(int32_t* deviceId) {
  if (deviceId == nullptr) return invalid("aclrtGetDevice", "null");
  const int device = core().device();
  if (device < 0) return core().failure(ACL_ERROR_RT_CONTEXT_NULL, "aclrtGetDevice: this thread has no device");
  *deviceId = device;
  return 0;
}
int aclrtGetRunMode(aclrtRunMode* runMode) {
  if (runMode == nullptr) return invalid("aclrtGetRunMode", "null");
  *runMode = ACL_HOST;
  return 0;
}
int aclrtSynchronizeDevice(void) { return core().synchronize_device("aclrtSynchronizeDevice", -1); }
int aclrtSynchronizeDeviceWithTimeout(int32_t timeout) {
  return core().synchronize_device("aclrtSynchronizeDeviceWithTimeout", timeout);
}
int aclrtQueryDeviceStatus(int32_t deviceId, aclrtDeviceStatus* deviceStatus) {
  if (deviceStatus == nullptr || deviceId < 0 || deviceId >= core().device_count())
    return invalid("aclrtQueryDeviceStatus", "null or no such device");
  *deviceStatus = core().lost(deviceId) ? ACL_RT_DEVICE_STATUS_ABNORMAL : ACL_RT_DEVICE_STATUS_NORMAL;
  return 0;
}
int aclrtCreateContext(aclrtContext* context, int32_t deviceId) { return core().create_context(context, deviceId); }
int aclrtDestroyContext(aclrtContext context) { return core().destroy_context(context); }
int aclrtSetCurrentContext(aclrtContext context) { return core().set_context(context); }
int aclrtGetCurrentContext(aclrtContext* context) {
  if (context == nullptr) return invalid("aclrtGetCurrentContext", "null");
  *context = core().context();
  if (*context == nullptr)
    return core().failure(ACL_ERROR_RT_CONTEXT_NULL, "aclrtGetCurrentContext: this thread has no device");
  return 0;
}
int aclrtCtxSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
  if (const int code = core().ready("aclrtCtxSetSysParamOpt"); code != 0) return code;
  if (opt < ACL_OPT_DETERMINISTIC || opt > ACL_OPT_ENABLE_DEBUG_KERNEL || (value != 0 && value != 1))
    return invalid("aclrtCtxSetSysParamOpt", "unknown option or value");
  core().context()->options[opt] = value;
  return 0;
}
int aclrtCtxGetSysParamOpt(aclSysParamOpt opt, int64_t* value) {
  if (const int code = core().ready("aclrtCtxGetSysParamOpt"); code != 0) return code;
  if (opt < ACL_OPT_DETERMINISTIC || opt > ACL_OPT_ENABLE_DEBUG_KERNEL || value == nullptr)
    return invalid("aclrtCtxGetSysParamOpt", "unknown option or null");
  *value = core().context()->options[opt];
  return 0;
}
int aclrtSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
  if (opt < ACL_OPT_DETERMINISTIC || opt > ACL_OPT_ENABLE_DEBUG_KERNEL || (value != 0 && value != 1))
    return invalid("aclrtSetSysParamOpt", "unknown option or value");
  core().options[opt] = value;
  return 0;
}
int aclrtGetSysParamOpt(aclSysParamOpt opt, int64_t* value) {
  if (opt < ACL_OPT_DETERMINISTIC || opt > ACL_OPT_ENABLE_DEBUG_KERNEL || value == nullptr)
    return invalid("aclrtGetSysParamOpt", "unknown option or null");
  *value = core().options[opt];
  return 0;
}
int aclrtSetDeviceSatMode(aclrtFloatOverflowMode mode) {
  if (const int code = core().ready("aclrtSetDeviceSatMode"); code != 0) return code;
  // The stand-in's numbers do not saturate.
  if (mode != ACL_RT_OVERFLOW_MODE_INFNAN)
    return core().failure(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "aclrtSetDeviceSatMode: INFNAN alone");
  core().set_overflow_mode(mode);
  return 0;
}
int aclrtGetDeviceSatMode(aclrtFloatOverflowMode* mode) {
  if (const int code = core().ready("aclrtGetDeviceSatMode"); code != 0) return code;
  if (mode == nullptr) return invalid("aclrtGetDeviceSatMode", "null");
  *mode = static_cast<aclrtFloatOverflowMode>(core().overflow_mode());
  return 0;
}
int aclrtGetOverflowStatus(void* outputAddr, size_t outputSize, aclrtStream stream) {
  if (outputAddr == nullptr || outputSize < 64) return invalid("aclrtGetOverflowStatus", "null or less than 64 bytes");
  return core().fill("aclrtGetOverflowStatus", outputAddr, outputSize, 0, 64, true, stream);
}
int aclrtResetOverflowStatus(aclrtStream) { return core().ready("aclrtResetOverflowStatus"); }
int aclrtDeviceCanAccessPeer(int32_t* canAccessPeer, int32_t deviceId, int32_t peerDeviceId) {
  const int count = core().device_count();
  if (canAccessPeer == nullptr || deviceId < 0 || deviceId >= count || peerDeviceId < 0 || peerDeviceId >= count ||
      deviceId == peerDeviceId)
    return invalid("aclrtDeviceCanAccessPeer", "null, or not two devices");
  *canAccessPeer = 1;
  return 0;
}
int aclrtDeviceEnablePeerAccess(int32_t peerDeviceId, uint32_t flags) {
  if (const int code = core().ready("aclrtDeviceEnablePeerAccess"); code != 0) return code;
  if (peerDeviceId < 0 || peerDeviceId >= core().device_count() || flags != 0)
    return invalid("aclrtDeviceEnablePeerAccess", "no such device, or flags");
  return 0;
}
int aclrtDeviceDisablePeerAccess(int32_t peerDeviceId) {
  if (const int code = core().ready("aclrtDeviceDisablePeerAccess"); code != 0) return code;
  if (peerDeviceId < 0 || peerDeviceId >= core().device_count())
    return invalid("aclrtDeviceDisablePeerAccess", "no such device");
  return 0;
}

// Streams and events

int aclrtCreateStream(aclrtStream* stream) { return core().create_stream(stream); }
int aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t priority, uint32_t flag) {
  if (priority > 7 || flag > uint32_t{ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC})
    return invalid("aclrtCreateStreamWithConfig", "unknown priority or flags");
  return core().create_stream(stream);
}
int aclrtDestroyStream(aclrtStream stream) { return core().destroy_stream(stream, false); }
int aclrtDestroyStreamForce(aclrtStream stream) { return core().destroy_stream(stream, true); }
int aclrtSynchronizeStream(aclrtStream stream) { return core().synchronize("aclrtSynchronizeStream", stream, -1); }
int aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout) {
  return core().synchronize("aclrtSynchronizeStreamWithTimeout", stream, timeout);
}
int aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus* status) {
  if (status == nullptr) return invalid("aclrtStreamQuery", "null");
  bool complete = false;
  const int code = core().query(stream, &complete);
  if (code == 0) *status = complete ? ACL_STREAM_STATUS_COMPLETE : ACL_STREAM_STATUS_NOT_READY;
  return code;
}
int aclrtStreamGetId(aclrtStream stream, int32_t* streamId) {
  if (streamId == nullptr) return invalid("aclrtStreamGetId", "null");
  return core().stream_number(stream, streamId);
}
int aclrtSetStreamFailureMode(aclrtStream stream, uint64_t mode) {
  if (stream == nullptr || mode > 1) return invalid("aclrtSetStreamFailureMode", "the default stream or unknown mode");
  return core().set_failure_mode(stream, mode == 1);
}

int aclrtCreateEvent(aclrtEvent* event) { return core().create_event(event, 0, false, false); }
int aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t flag) { return core().create_event(event, flag, true, false); }
int aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t flag) {
  return core().create_event(event, flag, false, true);
}
int aclrtDestroyEvent(aclrtEvent event) { return core().destroy_event(event); }
int aclrtRecordEvent(aclrtEvent event, aclrtStream stream) { return core().record(event, stream); }
int aclrtResetEvent(aclrtEvent event, aclrtStream stream) { return core().reset(event, stream); }
int aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event) { return core().wait(stream, event); }
int aclrtSynchronizeEvent(aclrtEvent event) { return core().synchronize_event("aclrtSynchronizeEvent", event, -1); }
int aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t timeout) {
  return core().synchronize_event("aclrtSynchronizeEventWithTimeout", event, timeout);
}
int aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus* status) {
  if (status == nullptr) return invalid("aclrtQueryEventStatus", "null");
  bool complete = false;
  const int code = core().query_event(event, &complete);
  if (code == 0) *status = complete ? ACL_EVENT_RECORDED_STATUS_COMPLETE : ACL_EVENT_RECORDED_STATUS_NOT_READY;
  return code;
}
int aclrtQueryEvent(aclrtEvent event, aclrtEventStatus* status) {
  if (status == nullptr) return invalid("aclrtQueryEvent", "null");
  bool complete = false;
  const int code = core().query_event(event, &complete);
  if (code == 0) *status = complete ? ACL_EVENT_STATUS_COMPLETE : ACL_EVENT_STATUS_NOT_READY;
  return code;
}
int aclrtEventElapsedTime(float* ms, aclrtEvent startEvent, aclrtEvent endEvent) {
  if (ms == nullptr) return invalid("aclrtEventElapsedTime", "null");
  stand_in::Time start, end;
  if (const int code = core().event_time("aclrtEventElapsedTime", startEvent, &start); code != 0) return code;
  if (const int code = core().event_time("aclrtEventElapsedTime", endEvent, &end); code != 0) return code;
  *ms = std::chrono::duration<float, std::milli>(end - start).count();
  return 0;
}
int aclrtEventGetTimestamp(aclrtEvent event, uint64_t* timestamp) {
  if (timestamp == nullptr) return invalid("aclrtEventGetTimestamp", "null");
  stand_in::Time when;
  if (const int code = core().event_time("aclrtEventGetTimestamp", event, &when); code != 0) return code;
  *timestamp =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(when.time_since_epoch()).count());
  return 0;
}

// Memory

int aclrtMalloc(void** devPtr, size_t size, aclrtMemMallocPolicy) {
  return core().allocate("aclrtMalloc", devPtr, size, (size + 31) / 32 * 32 + 32);
}
int aclrtMallocAlign32(void** devPtr, size_t size, aclrtMemMallocPolicy) {
  return core().allocate("aclrtMallocAlign32", devPtr, size, (size + 31) / 32 * 32);
}
int aclrtMallocCached(void** devPtr, size_t size, aclrtMemMallocPolicy) {
  return core().allocate("aclrtMallocCached", devPtr, size, (size + 31) / 32 * 32 + 32);
}
int aclrtFree(void* devPtr) { return core().release(devPtr); }
int aclrtMallocHost(void** hostPtr, size_t size) { return core().allocate_host(hostPtr, size); }
int aclrtFreeHost(void* hostPtr) { return core().release_host(hostPtr); }
int aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind) {
  return core().copy("aclrtMemcpy", dst, destMax, src, count, kind, false, nullptr);
}
int aclrtMemcpyAsync(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind,
                     aclrtStream stream) {
  return core().copy("aclrtMemcpyAsync", dst, destMax, src, count, kind, true, stream);
}
int aclrtMemset(void* devPtr, size_t maxCount, int32_t value, size_t count) {
  return core().fill("aclrtMemset", devPtr, maxCount, value, count, false, nullptr);
}
int aclrtMemsetAsync(void* devPtr, size_t maxCount, int32_t value, size_t count, aclrtStream stream) {
  return core().fill("aclrtMemsetAsync", devPtr, maxCount, value, count, true, stream);
}
int aclrtGetMemInfo(aclrtMemAttr attr, size_t* free, size_t* total) {
  if (free == nullptr || total == nullptr) return invalid("aclrtGetMemInfo", "null");
  if (const int code = core().ready("aclrtGetMemInfo"); code != 0) return code;
  if (attr != ACL_HBM_MEM && attr != ACL_HBM_MEM_HUGE && attr != ACL_HBM_MEM_NORMAL)
    return invalid("aclrtGetMemInfo", "the device has no such memory");
  return core().memory(free, total);
}
int aclrtPointerGetAttributes(const void* ptr, aclrtPtrAttributes* attributes) {
  if (ptr == nullptr || attributes == nullptr) return invalid("aclrtPointerGetAttributes", "null");
  const int device = core().owner(ptr);
  *attributes = {};
  attributes->location.id = device < 0 ? 0 : static_cast<uint32_t>(device);
  attributes->location.type = device < 0 ? ACL_MEM_LOCATION_TYPE_HOST : ACL_MEM_LOCATION_TYPE_DEVICE;
  attributes->pageSize = device < 0 ? 4096 : static_cast<uint32_t>(stand_in::kPage);
  return 0;
}

// Virtual memory management

namespace {

/// What gives memory back works also where the context does not any more.
int without_vmm(const char* caller, bool gives_back = false) {
  if (core().settings.vmm != 0) return gives_back ? 0 : core().ready(caller);
  return core().failure(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, std::string(caller) + ": not supported");
}

bool good(const aclrtPhysicalMemProp* prop) {
  return prop != nullptr && prop->handleType == ACL_MEM_HANDLE_TYPE_NONE &&
         prop->allocationType == ACL_MEM_ALLOCATION_TYPE_PINNED &&
         (prop->memAttr == ACL_HBM_MEM_HUGE || prop->memAttr == ACL_HBM_MEM_NORMAL) &&
         prop->location.type == ACL_MEM_LOCATION_TYPE_DEVICE && prop->reserve == 0;
}

}  // namespace

int aclrtReserveMemAddress(void** virPtr, size_t size, size_t alignment, void* expectPtr, uint64_t flags) {
  if (const int code = without_vmm("aclrtReserveMemAddress"); code != 0) return code;
  if (virPtr == nullptr || size == 0 || size % stand_in::kPage != 0 || alignment != 0 || expectPtr != nullptr ||
      flags > 1)
    return invalid("aclrtReserveMemAddress", "null, a size that is not whole pages, or what must be 0 is not");
  return core().reserve_address(virPtr, size, flags == 1);
}
int aclrtReleaseMemAddress(void* virPtr) {
  if (const int code = without_vmm("aclrtReleaseMemAddress", true); code != 0) return code;
  return core().release_address(virPtr);
}
int aclrtMallocPhysical(aclrtDrvMemHandle* handle, size_t size, const aclrtPhysicalMemProp* prop, uint64_t flags) {
  if (const int code = without_vmm("aclrtMallocPhysical"); code != 0) return code;
  if (handle == nullptr || size == 0 || size % stand_in::kPage != 0 || !good(prop) || flags != 0)
    return invalid("aclrtMallocPhysical", "null, a size that is not whole pages, or unknown properties");
  return core().allocate_physical(handle, size, static_cast<int>(prop->location.id), prop->memAttr == ACL_HBM_MEM_HUGE);
}
int aclrtFreePhysical(aclrtDrvMemHandle handle) {
  if (const int code = without_vmm("aclrtFreePhysical", true); code != 0) return code;
  return core().release_physical(handle);
}
int aclrtMapMem(void* virPtr, size_t size, size_t offset, aclrtDrvMemHandle handle, uint64_t flags) {
  if (const int code = without_vmm("aclrtMapMem"); code != 0) return code;
  if (virPtr == nullptr || offset != 0 || flags != 0) return invalid("aclrtMapMem", "null, or what must be 0 is not");
  return core().map(virPtr, size, handle);
}
int aclrtUnmapMem(void* virPtr) {
  if (const int code = without_vmm("aclrtUnmapMem", true); code != 0) return code;
  return core().unmap(virPtr);
}
int aclrtMemGetAllocationGranularity(aclrtPhysicalMemProp* prop, aclrtMemGranularityOptions option,
                                     size_t* granularity) {
  if (const int code = without_vmm("aclrtMemGetAllocationGranularity"); code != 0) return code;
  if (!good(prop) || granularity == nullptr ||
      (option != ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM && option != ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED))
    return invalid("aclrtMemGetAllocationGranularity", "null or unknown properties");
  *granularity = stand_in::kPage;
  return 0;
}

int aclrtPeekAtLastError(aclrtLastErrLevel) { return core().last_code(false); }
int aclrtGetLastError(aclrtLastErrLevel) { return core().last_code(true); }

// Control

void standInCounts(StandInCounts* counts) {
  const std::lock_guard<std::mutex> lock(core().mutex);
  *counts = core().counts;
}

void standInOperators(void (*f)(void* user, const char* name, uint64_t launches, double flops, double bytes),
                      void* user) {
  std::map<std::string, Core::Use> all;
  {
    const std::lock_guard<std::mutex> lock(core().mutex);
    all = core().operators;
  }
  for (const auto& [name, use] : all) f(user, name.c_str(), use.launches, use.flops, use.bytes);
}

void standInResetOperators(void) {
  const std::lock_guard<std::mutex> lock(core().mutex);
  core().operators.clear();
}

int standInSet(const char* name, int64_t value) {
  std::atomic<std::int64_t>* setting = name != nullptr ? core().settings.find(name) : nullptr;
  if (setting == nullptr) return 1;
  *setting = value;
  if (setting == &core().settings.check_leaks && value != 0) {
    core().report_leaks();
    *setting = 0;
  }
  return 0;
}

size_t standInTakeFaults(char* text, size_t size) { return core().take_faults(text, size); }

}  // extern "C"
