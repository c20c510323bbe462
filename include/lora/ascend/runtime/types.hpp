#pragma once

#include <cstdint>
#include <string_view>

#include "lora/core/scalar.hpp"

// Types and constants of the vendor's interface (CANN 8.1) that are used here, as facts: its headers are not needed to
// build. tests/ascend compares them with tables read from those headers.

namespace lora::ascend {

// Under the vendor's names.
using aclError = int;       ///< 0: success
using aclnnStatus = int;    ///< 0: success
using aclrtStream = void*;  ///< null: the default stream of the current context
using aclrtEvent = void*;
using aclrtContext = void*;
using aclrtDrvMemHandle = void*;  ///< physical memory of a device

struct aclTensor;
struct aclScalar;
struct aclIntArray;
struct aclTensorList;
struct aclOpExecutor;

enum aclDataType : int {
  ACL_FLOAT = 0,
  ACL_FLOAT16 = 1,
  ACL_INT8 = 2,
  ACL_INT32 = 3,
  ACL_UINT8 = 4,
  ACL_INT64 = 9,
  ACL_DOUBLE = 11,
  ACL_BOOL = 12,
  ACL_BF16 = 27,
};
enum aclFormat : int { ACL_FORMAT_ND = 2 };
enum aclrtMemAttr : int { ACL_HBM_MEM = 1, ACL_HBM_MEM_HUGE = 4 };
enum aclDeviceInfo : int { ACL_DEVICE_INFO_AI_CORE_NUM = 0, ACL_DEVICE_INFO_VECTOR_CORE_NUM = 1 };
enum aclrtMemMallocPolicy : int { ACL_MEM_MALLOC_HUGE_FIRST = 0 };
enum aclrtMemcpyKind : int {
  ACL_MEMCPY_HOST_TO_DEVICE = 1,
  ACL_MEMCPY_DEVICE_TO_HOST = 2,
  ACL_MEMCPY_DEVICE_TO_DEVICE = 3,
};
enum aclrtStreamStatus : int {
  ACL_STREAM_STATUS_COMPLETE = 0,
  ACL_STREAM_STATUS_NOT_READY = 1,
};
enum aclrtEventRecordedStatus : int {
  ACL_EVENT_RECORDED_STATUS_NOT_READY = 0,
  ACL_EVENT_RECORDED_STATUS_COMPLETE = 1,
};
inline constexpr std::uint32_t ACL_EVENT_SYNC = 1, ACL_EVENT_TIME_LINE = 8;  // macros, in the vendor's headers
enum aclSysParamOpt : int { ACL_OPT_DETERMINISTIC = 0 };
enum aclrtFloatOverflowMode : int { ACL_RT_OVERFLOW_MODE_INFNAN = 1 };
enum aclCANNPackageName : int { ACL_PKG_NAME_CANN = 0 };
enum aclrtMemHandleType : int { ACL_MEM_HANDLE_TYPE_NONE = 0 };
enum aclrtMemAllocationType : int { ACL_MEM_ALLOCATION_TYPE_PINNED = 0 };
enum aclrtMemLocationType : int { ACL_MEM_LOCATION_TYPE_DEVICE = 1 };

struct aclCANNPackageVersion {
  char version[128];
  char majorVersion[64];
  char minorVersion[64];
  char releaseVersion[64];
  char patchVersion[64];
  char reserved[128];
};
struct aclrtMemLocation {
  std::uint32_t id;
  aclrtMemLocationType type;
};
struct aclrtPhysicalMemProp {
  aclrtMemHandleType handleType;
  aclrtMemAllocationType allocationType;
  aclrtMemAttr memAttr;
  aclrtMemLocation location;
  std::uint64_t reserve;
};

constexpr aclError ACL_ERROR_REPEAT_INITIALIZE = 100002;
constexpr aclError ACL_ERROR_RT_CONTEXT_NULL = 107002;
constexpr aclError ACL_ERROR_RT_FEATURE_NOT_SUPPORT = 207000;
constexpr aclError ACL_ERROR_RT_MEMORY_ALLOCATION = 207001;
constexpr aclError ACL_ERROR_RT_DEVICE_OOM = 207018;
constexpr aclError ACL_ERROR_RT_DEV_SETUP_ERROR = 507033;
constexpr aclError ACL_ERROR_RT_STREAM_SYNC_TIMEOUT = 507046;
constexpr aclError ACL_ERROR_RT_EVENT_SYNC_TIMEOUT = 507047;
constexpr aclnnStatus ACLNN_ERR_RUNTIME_ERROR = 361001;
constexpr aclnnStatus ACLNN_ERR_INNER_OPP_KERNEL_PKG_NOT_FOUND = 561112;

/// Whether it is one of those after which a device does no more of this process's work, or may never end it: exceptions
/// of kernels, lost cards, work that hangs.
constexpr bool ends_work(aclError error) {
  return (error >= 507000 && error < 508000) || error == ACLNN_ERR_RUNTIME_ERROR;
}

/// Mode of a stream: what is queued behind work that has failed is not done any more.
constexpr std::uint64_t stop_on_failure = 1;

/// cubeMathType of products: inputs are multiplied in their own type.
constexpr std::int8_t KEEP_DTYPE = 0;

/// The vendor's name of an element type; of others there is none.
template <class T>
extern const aclDataType acl_type;
template <>
inline constexpr aclDataType acl_type<float> = ACL_FLOAT;
template <>
inline constexpr aclDataType acl_type<bf16> = ACL_BF16;
template <>
inline constexpr aclDataType acl_type<f16> = ACL_FLOAT16;
template <>
inline constexpr aclDataType acl_type<std::int32_t> = ACL_INT32;
template <>
inline constexpr aclDataType acl_type<std::int64_t> = ACL_INT64;
template <>
inline constexpr aclDataType acl_type<std::int8_t> = ACL_INT8;
template <>
inline constexpr aclDataType acl_type<std::uint8_t> = ACL_UINT8;

constexpr std::int64_t bytes_of(aclDataType type) {
  switch (type) {
    case ACL_FLOAT:
    case ACL_INT32:
      return 4;
    case ACL_FLOAT16:
    case ACL_BF16:
      return 2;
    case ACL_INT64:
    case ACL_DOUBLE:
      return 8;
    case ACL_INT8:
    case ACL_UINT8:
    case ACL_BOOL:
      return 1;
  }
  return 0;
}

constexpr std::string_view name_of(aclDataType type) {
  switch (type) {
    case ACL_FLOAT:
      return "float32";
    case ACL_FLOAT16:
      return "float16";
    case ACL_INT8:
      return "int8";
    case ACL_INT32:
      return "int32";
    case ACL_UINT8:
      return "uint8";
    case ACL_INT64:
      return "int64";
    case ACL_DOUBLE:
      return "float64";
    case ACL_BOOL:
      return "bool";
    case ACL_BF16:
      return "bfloat16";
  }
  return "?";
}

}  // namespace lora::ascend
