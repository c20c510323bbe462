/* The part of the vendor's C interface (CANN 8.1) that the stand-in has: its types, constants and prototypes. A test
   compares them with the committed extract of the vendor's headers. */
#ifndef STAND_IN_VENDOR_H
#define STAND_IN_VENDOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void* aclrtStream;
typedef void* aclrtEvent;
typedef void* aclrtContext;
typedef void* aclrtDrvMemHandle;
typedef uint16_t aclFloat16;
typedef struct aclTensor aclTensor;
typedef struct aclScalar aclScalar;
typedef struct aclIntArray aclIntArray;
typedef struct aclFloatArray aclFloatArray;
typedef struct aclBoolArray aclBoolArray;
typedef struct aclTensorList aclTensorList;
typedef struct aclScalarList aclScalarList;
typedef struct aclOpExecutor aclOpExecutor;

typedef enum {
  ACL_DT_UNDEFINED = -1,
  ACL_FLOAT = 0,
  ACL_FLOAT16 = 1,
  ACL_INT8 = 2,
  ACL_INT32 = 3,
  ACL_UINT8 = 4,
  ACL_INT16 = 6,
  ACL_UINT16 = 7,
  ACL_UINT32 = 8,
  ACL_INT64 = 9,
  ACL_UINT64 = 10,
  ACL_DOUBLE = 11,
  ACL_BOOL = 12,
  ACL_STRING = 13,
  ACL_COMPLEX64 = 16,
  ACL_COMPLEX128 = 17,
  ACL_BF16 = 27,
  ACL_INT4 = 29,
  ACL_UINT1 = 30,
  ACL_COMPLEX32 = 33
} aclDataType;

typedef enum {
  ACL_FORMAT_UNDEFINED = -1,
  ACL_FORMAT_NCHW = 0,
  ACL_FORMAT_NHWC = 1,
  ACL_FORMAT_ND = 2,
  ACL_FORMAT_NC1HWC0 = 3,
  ACL_FORMAT_FRACTAL_Z = 4,
  ACL_FORMAT_NC1HWC0_C04 = 12,
  ACL_FORMAT_HWCN = 16,
  ACL_FORMAT_NDHWC = 27,
  ACL_FORMAT_FRACTAL_NZ = 29,
  ACL_FORMAT_NCDHW = 30,
  ACL_FORMAT_NDC1HWC0 = 32,
  ACL_FRACTAL_Z_3D = 33,
  ACL_FORMAT_NC = 35,
  ACL_FORMAT_NCL = 47
} aclFormat;

typedef enum {
  ACL_MEM_MALLOC_HUGE_FIRST = 0,
  ACL_MEM_MALLOC_HUGE_ONLY = 1,
  ACL_MEM_MALLOC_NORMAL_ONLY = 2,
  ACL_MEM_MALLOC_HUGE_FIRST_P2P = 3,
  ACL_MEM_MALLOC_HUGE_ONLY_P2P = 4,
  ACL_MEM_MALLOC_NORMAL_ONLY_P2P = 5,
  ACL_MEM_MALLOC_HUGE1G_ONLY = 6,
  ACL_MEM_MALLOC_HUGE1G_ONLY_P2P = 7,
  ACL_MEM_TYPE_LOW_BAND_WIDTH = 0x100,
  ACL_MEM_TYPE_HIGH_BAND_WIDTH = 0x1000,
  ACL_MEM_ACCESS_USER_SPACE_READONLY = 0x100000
} aclrtMemMallocPolicy;

typedef enum {
  ACL_MEMCPY_HOST_TO_HOST = 0,
  ACL_MEMCPY_HOST_TO_DEVICE = 1,
  ACL_MEMCPY_DEVICE_TO_HOST = 2,
  ACL_MEMCPY_DEVICE_TO_DEVICE = 3,
  ACL_MEMCPY_DEFAULT = 4,
  ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE = 5,
  ACL_MEMCPY_INNER_DEVICE_TO_DEVICE = 6,
  ACL_MEMCPY_INTER_DEVICE_TO_DEVICE = 7
} aclrtMemcpyKind;

typedef enum {
  ACL_DDR_MEM = 0,
  ACL_HBM_MEM = 1,
  ACL_DDR_MEM_HUGE = 2,
  ACL_DDR_MEM_NORMAL = 3,
  ACL_HBM_MEM_HUGE = 4,
  ACL_HBM_MEM_NORMAL = 5,
  ACL_DDR_MEM_P2P_HUGE = 6,
  ACL_DDR_MEM_P2P_NORMAL = 7,
  ACL_HBM_MEM_P2P_HUGE = 8,
  ACL_HBM_MEM_P2P_NORMAL = 9,
  ACL_HBM_MEM_HUGE1G = 10,
  ACL_HBM_MEM_P2P_HUGE1G = 11
} aclrtMemAttr;

typedef enum { ACL_DEVICE = 0, ACL_HOST = 1 } aclrtRunMode;

typedef enum {
  ACL_RT_OVERFLOW_MODE_SATURATION = 0,
  ACL_RT_OVERFLOW_MODE_INFNAN = 1,
  ACL_RT_OVERFLOW_MODE_UNDEF = 2
} aclrtFloatOverflowMode;

typedef enum { ACL_OPT_DETERMINISTIC = 0, ACL_OPT_ENABLE_DEBUG_KERNEL = 1 } aclSysParamOpt;

typedef enum {
  ACL_DEVICE_INFO_UNDEFINED = -1,
  ACL_DEVICE_INFO_AI_CORE_NUM = 0,
  ACL_DEVICE_INFO_VECTOR_CORE_NUM = 1,
  ACL_DEVICE_INFO_L2_SIZE = 2
} aclDeviceInfo;

typedef enum {
  ACL_STREAM_STATUS_COMPLETE = 0,
  ACL_STREAM_STATUS_NOT_READY = 1,
  ACL_STREAM_STATUS_RESERVED = 0xFFFF
} aclrtStreamStatus;

typedef enum {
  ACL_EVENT_RECORDED_STATUS_NOT_READY = 0,
  ACL_EVENT_RECORDED_STATUS_COMPLETE = 1
} aclrtEventRecordedStatus;

typedef enum {
  ACL_EVENT_STATUS_COMPLETE = 0,
  ACL_EVENT_STATUS_NOT_READY = 1,
  ACL_EVENT_STATUS_RESERVED = 2
} aclrtEventStatus;

typedef enum {
  ACL_RT_DEVICE_STATUS_NORMAL = 0,
  ACL_RT_DEVICE_STATUS_ABNORMAL = 1,
  ACL_RT_DEVICE_STATUS_END = 0xFFFF
} aclrtDeviceStatus;

typedef enum { ACL_RT_THREAD_LEVEL = 0 } aclrtLastErrLevel;

typedef enum {
  ACL_PKG_NAME_CANN = 0,
  ACL_PKG_NAME_RUNTIME = 1,
  ACL_PKG_NAME_COMPILER = 2,
  ACL_PKG_NAME_HCCL = 3,
  ACL_PKG_NAME_TOOLKIT = 4,
  ACL_PKG_NAME_OPP = 5,
  ACL_PKG_NAME_OPP_KERNEL = 6,
  ACL_PKG_NAME_DRIVER = 7
} aclCANNPackageName;

typedef struct {
  char version[128];
  char majorVersion[64];
  char minorVersion[64];
  char releaseVersion[64];
  char patchVersion[64];
  char reserved[128];
} aclCANNPackageVersion;

typedef enum { ACL_MEM_HANDLE_TYPE_NONE = 0 } aclrtMemHandleType;
typedef enum { ACL_MEM_ALLOCATION_TYPE_PINNED = 0 } aclrtMemAllocationType;
typedef enum { ACL_MEM_LOCATION_TYPE_HOST = 0, ACL_MEM_LOCATION_TYPE_DEVICE = 1 } aclrtMemLocationType;

typedef enum {
  ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM = 0,
  ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED = 1,
  ACL_RT_MEM_ALLOC_GRANULARITY_UNDEF = 0xFFFF
} aclrtMemGranularityOptions;

typedef struct aclrtMemLocation {
  uint32_t id;
  aclrtMemLocationType type;
} aclrtMemLocation;

typedef struct aclrtPtrAttributes {
  aclrtMemLocation location;
  uint32_t pageSize;
  uint32_t rsv[4];
} aclrtPtrAttributes;

typedef struct aclrtPhysicalMemProp {
  aclrtMemHandleType handleType;
  aclrtMemAllocationType allocationType;
  aclrtMemAttr memAttr;
  aclrtMemLocation location;
  uint64_t reserve;
} aclrtPhysicalMemProp;

enum {
  ACL_STREAM_FAST_LAUNCH = 1,
  ACL_STREAM_FAST_SYNC = 2,
  ACL_EVENT_SYNC = 1,
  ACL_EVENT_CAPTURE_STREAM_PROGRESS = 2,
  ACL_EVENT_TIME_LINE = 8,
  ACL_EVENT_EXTERNAL = 0x20
};

enum {
  ACL_SUCCESS = 0,
  ACL_ERROR_INVALID_PARAM = 100000,
  ACL_ERROR_UNINITIALIZE = 100001,
  ACL_ERROR_REPEAT_INITIALIZE = 100002,
  ACL_ERROR_REPEAT_FINALIZE = 100037,
  ACL_ERROR_BAD_ALLOC = 200000,
  ACL_ERROR_RT_PARAM_INVALID = 107000,
  ACL_ERROR_RT_INVALID_DEVICEID = 107001,
  ACL_ERROR_RT_CONTEXT_NULL = 107002,
  ACL_ERROR_RT_STREAM_CONTEXT = 107003,
  ACL_ERROR_RT_ADDR_UNALIGNED = 107008,
  ACL_ERROR_RT_INVALID_HANDLE = 107017,
  ACL_ERROR_RT_WAIT_TIMEOUT = 107019,
  ACL_ERROR_RT_FEATURE_NOT_SUPPORT = 207000,
  ACL_ERROR_RT_MEMORY_ALLOCATION = 207001,
  ACL_ERROR_RT_MEMORY_FREE = 207002,
  ACL_ERROR_RT_NO_DEVICE = 207004,
  ACL_ERROR_RT_INTERNAL_ERROR = 507000,
  ACL_ERROR_RT_AICORE_TIMEOUT = 507014,
  ACL_ERROR_RT_AICORE_EXCEPTION = 507015,
  ACL_ERROR_RT_AICPU_EXCEPTION = 507018,
  ACL_ERROR_RT_STREAM_SYNC_TIMEOUT = 507046,
  ACL_ERROR_RT_EVENT_SYNC_TIMEOUT = 507047,
  ACL_ERROR_RT_DEVICE_MEM_ERROR = 507053,
  ACL_ERROR_RT_DRV_INTERNAL_ERROR = 507899,
  ACLNN_ERR_PARAM_NULLPTR = 161001,
  ACLNN_ERR_PARAM_INVALID = 161002,
  ACLNN_ERR_RUNTIME_ERROR = 361001,
  ACLNN_ERR_INNER = 561000,
  ACLNN_ERR_INNER_TILING_ERROR = 561002,
  ACLNN_ERR_INNER_CREATE_EXECUTOR = 561101,
  ACLNN_ERR_INNER_NULLPTR = 561103,
  ACLNN_ERR_INNER_OPP_KERNEL_PKG_NOT_FOUND = 561112
};

typedef void* HcclComm;

typedef enum {
  HCCL_SUCCESS = 0,
  HCCL_E_PARA = 1,
  HCCL_E_PTR = 2,
  HCCL_E_MEMORY = 3,
  HCCL_E_INTERNAL = 4,
  HCCL_E_NOT_SUPPORT = 5,
  HCCL_E_NOT_FOUND = 6,
  HCCL_E_UNAVAIL = 7,
  HCCL_E_SYSCALL = 8,
  HCCL_E_TIMEOUT = 9,
  HCCL_E_OPEN_FILE_FAILURE = 10,
  HCCL_E_TCP_CONNECT = 11,
  HCCL_E_ROCE_CONNECT = 12,
  HCCL_E_TCP_TRANSFER = 13,
  HCCL_E_ROCE_TRANSFER = 14,
  HCCL_E_RUNTIME = 15,
  HCCL_E_DRV = 16,
  HCCL_E_PROFILING = 17,
  HCCL_E_CCE = 18,
  HCCL_E_NETWORK = 19,
  HCCL_E_AGAIN = 20,
  HCCL_E_REMOTE = 21,
  HCCL_E_SUSPENDING = 22,
  HCCL_E_RESERVED = 23
} HcclResult;

typedef enum {
  HCCL_REDUCE_SUM = 0,
  HCCL_REDUCE_PROD = 1,
  HCCL_REDUCE_MAX = 2,
  HCCL_REDUCE_MIN = 3,
  HCCL_REDUCE_RESERVED = 255
} HcclReduceOp;

typedef enum {
  HCCL_DATA_TYPE_INT8 = 0,
  HCCL_DATA_TYPE_INT16 = 1,
  HCCL_DATA_TYPE_INT32 = 2,
  HCCL_DATA_TYPE_FP16 = 3,
  HCCL_DATA_TYPE_FP32 = 4,
  HCCL_DATA_TYPE_INT64 = 5,
  HCCL_DATA_TYPE_UINT64 = 6,
  HCCL_DATA_TYPE_UINT8 = 7,
  HCCL_DATA_TYPE_UINT16 = 8,
  HCCL_DATA_TYPE_UINT32 = 9,
  HCCL_DATA_TYPE_FP64 = 10,
  HCCL_DATA_TYPE_BFP16 = 11,
  HCCL_DATA_TYPE_INT128 = 12,
  HCCL_DATA_TYPE_RESERVED = 255
} HcclDataType;

typedef enum { HCCL_DETERMINISTIC = 0, HCCL_CONFIG_RESERVED = 1 } HcclConfig;
typedef union {
  int32_t value;
} HcclConfigValue;

typedef struct HcclRootInfoDef {
  char internal[4108];
} HcclRootInfo;

typedef struct HcclCommConfigDef {
  char reserved[24];
  uint32_t hcclBufferSize;
  uint32_t hcclDeterministic;
  char hcclCommName[128];
  char hcclUdi[128];
  uint32_t hcclOpExpansionMode;
  uint32_t hcclRdmaTrafficClass;
  uint32_t hcclRdmaServiceLevel;
} HcclCommConfig;

typedef enum { HCCL_SEND = 0, HCCL_RECV = 1, HCCL_SEND_RECV_RESERVED = 2 } HcclSendRecvType;

typedef struct HcclSendRecvItemDef {
  HcclSendRecvType sendRecvType;
  void* buf;
  uint64_t count;
  HcclDataType dataType;
  uint32_t remoteRank;
} HcclSendRecvItem;

/* Runtime (libascendcl.so) */
int aclInit(const char* configPath);
int aclFinalize(void);
const char* aclGetRecentErrMsg(void);
const char* aclrtGetSocName(void);
int aclrtGetVersion(int32_t* majorVersion, int32_t* minorVersion, int32_t* patchVersion);
int aclsysGetCANNVersion(aclCANNPackageName name, aclCANNPackageVersion* version);
int aclGetDeviceCapability(uint32_t deviceId, aclDeviceInfo deviceInfo, int64_t* value);
size_t aclDataTypeSize(aclDataType dataType);
float aclFloat16ToFloat(aclFloat16 value);
aclFloat16 aclFloatToFloat16(float value);
int aclrtGetDeviceCount(uint32_t* count);
int aclrtSetDevice(int32_t deviceId);
int aclrtResetDevice(int32_t deviceId);
int aclrtResetDeviceForce(int32_t deviceId);
int aclrtGetDevice(int32_t* deviceId);
int aclrtGetRunMode(aclrtRunMode* runMode);
int aclrtSynchronizeDevice(void);
int aclrtSynchronizeDeviceWithTimeout(int32_t timeout);
int aclrtQueryDeviceStatus(int32_t deviceId, aclrtDeviceStatus* deviceStatus);
int aclrtCreateContext(aclrtContext* context, int32_t deviceId);
int aclrtDestroyContext(aclrtContext context);
int aclrtSetCurrentContext(aclrtContext context);
int aclrtGetCurrentContext(aclrtContext* context);
int aclrtCtxSetSysParamOpt(aclSysParamOpt opt, int64_t value);
int aclrtCtxGetSysParamOpt(aclSysParamOpt opt, int64_t* value);
int aclrtSetSysParamOpt(aclSysParamOpt opt, int64_t value);
int aclrtGetSysParamOpt(aclSysParamOpt opt, int64_t* value);
int aclrtSetDeviceSatMode(aclrtFloatOverflowMode mode);
int aclrtGetDeviceSatMode(aclrtFloatOverflowMode* mode);
int aclrtGetOverflowStatus(void* outputAddr, size_t outputSize, aclrtStream stream);
int aclrtResetOverflowStatus(aclrtStream stream);
int aclrtDeviceCanAccessPeer(int32_t* canAccessPeer, int32_t deviceId, int32_t peerDeviceId);
int aclrtDeviceEnablePeerAccess(int32_t peerDeviceId, uint32_t flags);
int aclrtDeviceDisablePeerAccess(int32_t peerDeviceId);
int aclrtCreateStream(aclrtStream* stream);
int aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t priority, uint32_t flag);
int aclrtDestroyStream(aclrtStream stream);
int aclrtDestroyStreamForce(aclrtStream stream);
int aclrtSynchronizeStream(aclrtStream stream);
int aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout);
int aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus* status);
int aclrtStreamGetId(aclrtStream stream, int32_t* streamId);
int aclrtSetStreamFailureMode(aclrtStream stream, uint64_t mode);
int aclrtCreateEvent(aclrtEvent* event);
int aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t flag);
int aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t flag);
int aclrtDestroyEvent(aclrtEvent event);
int aclrtRecordEvent(aclrtEvent event, aclrtStream stream);
int aclrtResetEvent(aclrtEvent event, aclrtStream stream);
int aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event);
int aclrtSynchronizeEvent(aclrtEvent event);
int aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t timeout);
int aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus* status);
int aclrtQueryEvent(aclrtEvent event, aclrtEventStatus* status);
int aclrtEventElapsedTime(float* ms, aclrtEvent startEvent, aclrtEvent endEvent);
int aclrtEventGetTimestamp(aclrtEvent event, uint64_t* timestamp);
int aclrtMalloc(void** devPtr, size_t size, aclrtMemMallocPolicy policy);
int aclrtMallocAlign32(void** devPtr, size_t size, aclrtMemMallocPolicy policy);
int aclrtMallocCached(void** devPtr, size_t size, aclrtMemMallocPolicy policy);
int aclrtFree(void* devPtr);
int aclrtMallocHost(void** hostPtr, size_t size);
int aclrtFreeHost(void* hostPtr);
int aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind);
int aclrtMemcpyAsync(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind,
                     aclrtStream stream);
int aclrtMemset(void* devPtr, size_t maxCount, int32_t value, size_t count);
int aclrtMemsetAsync(void* devPtr, size_t maxCount, int32_t value, size_t count, aclrtStream stream);
int aclrtGetMemInfo(aclrtMemAttr attr, size_t* free, size_t* total);
int aclrtPointerGetAttributes(const void* ptr, aclrtPtrAttributes* attributes);
int aclrtReserveMemAddress(void** virPtr, size_t size, size_t alignment, void* expectPtr, uint64_t flags);
int aclrtReleaseMemAddress(void* virPtr);
int aclrtMallocPhysical(aclrtDrvMemHandle* handle, size_t size, const aclrtPhysicalMemProp* prop, uint64_t flags);
int aclrtFreePhysical(aclrtDrvMemHandle handle);
int aclrtMapMem(void* virPtr, size_t size, size_t offset, aclrtDrvMemHandle handle, uint64_t flags);
int aclrtUnmapMem(void* virPtr);
int aclrtMemGetAllocationGranularity(aclrtPhysicalMemProp* prop, aclrtMemGranularityOptions option,
                                     size_t* granularity);
int aclrtPeekAtLastError(aclrtLastErrLevel level);
int aclrtGetLastError(aclrtLastErrLevel level);

/* Descriptions of operands (libnnopbase.so) */
aclTensor* aclCreateTensor(const int64_t* viewDims, uint64_t viewDimsNum, aclDataType dataType, const int64_t* stride,
                           int64_t offset, aclFormat format, const int64_t* storageDims, uint64_t storageDimsNum,
                           void* tensorData);
int aclDestroyTensor(const aclTensor* tensor);
aclScalar* aclCreateScalar(void* value, aclDataType dataType);
int aclDestroyScalar(const aclScalar* scalar);
aclIntArray* aclCreateIntArray(const int64_t* value, uint64_t size);
int aclDestroyIntArray(const aclIntArray* array);
aclFloatArray* aclCreateFloatArray(const float* value, uint64_t size);
int aclDestroyFloatArray(const aclFloatArray* array);
aclBoolArray* aclCreateBoolArray(const bool* value, uint64_t size);
int aclDestroyBoolArray(const aclBoolArray* array);
aclTensorList* aclCreateTensorList(const aclTensor* const* value, uint64_t size);
int aclDestroyTensorList(const aclTensorList* array);
aclScalarList* aclCreateScalarList(const aclScalar* const* value, uint64_t size);
int aclDestroyScalarList(const aclScalarList* array);
int aclGetViewShape(const aclTensor* tensor, int64_t** viewDims, uint64_t* viewDimsNum);
int aclGetStorageShape(const aclTensor* tensor, int64_t** storageDims, uint64_t* storageDimsNum);
int aclGetViewStrides(const aclTensor* tensor, int64_t** stridesValue, uint64_t* stridesNum);
int aclGetViewOffset(const aclTensor* tensor, int64_t* offset);
int aclGetFormat(const aclTensor* tensor, aclFormat* format);
int aclGetDataType(const aclTensor* tensor, aclDataType* dataType);
int aclGetIntArraySize(const aclIntArray* array, uint64_t* size);
int aclGetFloatArraySize(const aclFloatArray* array, uint64_t* size);
int aclGetBoolArraySize(const aclBoolArray* array, uint64_t* size);
int aclGetTensorListSize(const aclTensorList* tensorList, uint64_t* size);
int aclGetScalarListSize(const aclScalarList* scalarList, uint64_t* size);
int aclSetRawTensorAddr(aclTensor* tensor, void* addr);
int aclGetRawTensorAddr(const aclTensor* tensor, void** addr);
int aclSetAclOpExecutorRepeatable(aclOpExecutor* executor);
int aclDestroyAclOpExecutor(aclOpExecutor* executor);
int aclSetTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr);
int aclSetInputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr);
int aclSetOutputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr);
int aclSetDynamicTensorAddr(aclOpExecutor* executor, size_t irIndex, const size_t relativeIndex, aclTensorList* tensors,
                            void* addr);
int aclSetDynamicInputTensorAddr(aclOpExecutor* executor, size_t irIndex, const size_t relativeIndex,
                                 aclTensorList* tensors, void* addr);
int aclSetDynamicOutputTensorAddr(aclOpExecutor* executor, size_t irIndex, const size_t relativeIndex,
                                  aclTensorList* tensors, void* addr);
int aclnnInit(const char* configPath);
int aclnnFinalize(void);

/* Operators (libopapi.so) */
int aclnnMatmulGetWorkspaceSize(const aclTensor* self, const aclTensor* mat2, aclTensor* out, int8_t cubeMathType,
                                uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnMatmul(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnMmGetWorkspaceSize(const aclTensor* self, const aclTensor* mat2, aclTensor* out, int8_t cubeMathType,
                            uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnMm(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnBatchMatMulGetWorkspaceSize(const aclTensor* self, const aclTensor* mat2, aclTensor* out, int8_t cubeMathType,
                                     uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnBatchMatMul(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnAddmmGetWorkspaceSize(const aclTensor* self, const aclTensor* mat1, const aclTensor* mat2,
                               const aclScalar* beta, const aclScalar* alpha, aclTensor* out, int8_t cubeMathType,
                               uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnAddmm(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, const aclrtStream stream);
int aclnnInplaceAddmmGetWorkspaceSize(const aclTensor* selfRef, const aclTensor* mat1, const aclTensor* mat2,
                                      const aclScalar* beta, const aclScalar* alpha, int8_t cubeMathType,
                                      uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnInplaceAddmm(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, const aclrtStream stream);
int aclnnBaddbmmGetWorkspaceSize(const aclTensor* self, const aclTensor* batch1, const aclTensor* batch2,
                                 const aclScalar* beta, const aclScalar* alpha, aclTensor* out, int8_t cubeMathType,
                                 uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnBaddbmm(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnInplaceBaddbmmGetWorkspaceSize(const aclTensor* selfRef, const aclTensor* batch1, const aclTensor* batch2,
                                        const aclScalar* beta, const aclScalar* alpha, int8_t cubeMathType,
                                        uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnInplaceBaddbmm(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnGemmGetWorkspaceSize(const aclTensor* A, const aclTensor* B, const aclTensor* C, float alpha, float beta,
                              int64_t transA, int64_t transB, aclTensor* out, int8_t cubeMathType,
                              uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnGemm(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnRmsNormGetWorkspaceSize(const aclTensor* x, const aclTensor* gamma, double epsilon, const aclTensor* yOut,
                                 const aclTensor* rstdOut, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnRmsNorm(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnRmsNormGradGetWorkspaceSize(const aclTensor* dy, const aclTensor* x, const aclTensor* rstd,
                                     const aclTensor* gamma, const aclTensor* dxOut, const aclTensor* dgammaOut,
                                     uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnRmsNormGrad(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnAddRmsNormGetWorkspaceSize(const aclTensor* x1, const aclTensor* x2, const aclTensor* gamma, double epsilon,
                                    const aclTensor* yOut, const aclTensor* rstdOut, const aclTensor* xOut,
                                    uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnAddRmsNorm(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnRotaryPositionEmbeddingGetWorkspaceSize(const aclTensor* x, const aclTensor* cos, const aclTensor* sin,
                                                 int64_t mode, aclTensor* out, uint64_t* workspaceSize,
                                                 aclOpExecutor** executor);
int aclnnRotaryPositionEmbedding(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnRotaryPositionEmbeddingGradGetWorkspaceSize(const aclTensor* dy, const aclTensor* cos, const aclTensor* sin,
                                                     const aclTensor* xOptional, int64_t mode, const aclTensor* dxOut,
                                                     const aclTensor* dcosOut, const aclTensor* dsinOut,
                                                     uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnRotaryPositionEmbeddingGrad(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                     aclrtStream stream);
int aclnnSwiGluGetWorkspaceSize(const aclTensor* x, int64_t dim, const aclTensor* out, uint64_t* workspaceSize,
                                aclOpExecutor** executor);
int aclnnSwiGlu(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnSwiGluGradGetWorkspaceSize(const aclTensor* yGrad, const aclTensor* x, int64_t dim, const aclTensor* out,
                                    uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnSwiGluGrad(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnGeGluV3GetWorkspaceSize(const aclTensor* self, int64_t dim, int64_t approximate, bool activateLeft,
                                 aclTensor* out, aclTensor* outGelu, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnGeGluV3(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnGeGluV3BackwardGetWorkspaceSize(const aclTensor* gradOutput, const aclTensor* self, const aclTensor* gelu,
                                         int64_t dim, int64_t approximate, bool activateLeft, aclTensor* gradInput,
                                         uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnGeGluV3Backward(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnSiluGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnSilu(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnSiluBackwardGetWorkspaceSize(const aclTensor* gradOutput, const aclTensor* self, aclTensor* gradInput,
                                      uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnSiluBackward(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, const aclrtStream stream);
int aclnnFlashAttentionScoreGetWorkspaceSize(const aclTensor* query, const aclTensor* key, const aclTensor* value,
                                             const aclTensor* realShiftOptional, const aclTensor* dropMaskOptional,
                                             const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional,
                                             const aclIntArray* prefixOptional, double scaleValue, double keepProb,
                                             int64_t preTokens, int64_t nextTokens, int64_t headNum, char* inputLayout,
                                             int64_t innerPrecise, int64_t sparseMode, const aclTensor* softmaxMaxOut,
                                             const aclTensor* softmaxSumOut, const aclTensor* softmaxOutOut,
                                             const aclTensor* attentionOutOut, uint64_t* workspaceSize,
                                             aclOpExecutor** executor);
int aclnnFlashAttentionScore(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                             const aclrtStream stream);
int aclnnFlashAttentionScoreGradGetWorkspaceSize(
    const aclTensor* query, const aclTensor* keyIn, const aclTensor* value, const aclTensor* dy,
    const aclTensor* pseShiftOptional, const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional,
    const aclTensor* attenMaskOptional, const aclTensor* softmaxMaxOptional, const aclTensor* softmaxSumOptional,
    const aclTensor* softmaxInOptional, const aclTensor* attentionInOptional, const aclIntArray* prefixOptional,
    double scaleValue, double keepProb, int64_t preTokens, int64_t nextTokens, int64_t headNum, char* inputLayout,
    int64_t innerPrecise, int64_t sparseMode, const aclTensor* dqOut, const aclTensor* dkOut, const aclTensor* dvOut,
    const aclTensor* dpseOut, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnFlashAttentionScoreGrad(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                 const aclrtStream stream);
int aclnnFlashAttentionScoreV2GetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* realShiftOptional,
    const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional,
    const aclIntArray* prefixOptional, const aclIntArray* qStartIdxOptional, const aclIntArray* kvStartIdxOptional,
    double scaleValue, double keepProb, int64_t preTokens, int64_t nextTokens, int64_t headNum, char* inputLayout,
    int64_t innerPrecise, int64_t sparseMode, int64_t pseType, const aclTensor* softmaxMaxOut,
    const aclTensor* softmaxSumOut, const aclTensor* softmaxOutOut, const aclTensor* attentionOutOut,
    uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnFlashAttentionScoreV2(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                               const aclrtStream stream);
int aclnnFlashAttentionVarLenScoreV2GetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* realShiftOptional,
    const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional,
    const aclIntArray* prefixOptional, const aclIntArray* actualSeqQLenOptional,
    const aclIntArray* actualSeqKvLenOptional, const aclIntArray* qStartIdxOptional,
    const aclIntArray* kvStartIdxOptional, double scaleValue, double keepProb, int64_t preTokens, int64_t nextTokens,
    int64_t headNum, char* inputLayout, int64_t innerPrecise, int64_t sparseMode, int64_t pseType,
    const aclTensor* softmaxMaxOut, const aclTensor* softmaxSumOut, const aclTensor* softmaxOutOut,
    const aclTensor* attentionOutOut, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnFlashAttentionVarLenScoreV2(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                     const aclrtStream stream);
int aclnnFlashAttentionScoreGradV2GetWorkspaceSize(
    const aclTensor* query, const aclTensor* keyIn, const aclTensor* value, const aclTensor* dy,
    const aclTensor* pseShiftOptional, const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional,
    const aclTensor* attenMaskOptional, const aclTensor* softmaxMaxOptional, const aclTensor* softmaxSumOptional,
    const aclTensor* softmaxInOptional, const aclTensor* attentionInOptional, const aclIntArray* prefixOptional,
    const aclIntArray* qStartIdxOptional, const aclIntArray* kvStartIdxOptional, double scaleValue, double keepProb,
    int64_t preTokens, int64_t nextTokens, int64_t headNum, char* inputLayout, int64_t innerPrecise, int64_t sparseMode,
    int64_t pseType, const aclTensor* dqOut, const aclTensor* dkOut, const aclTensor* dvOut, const aclTensor* dpseOut,
    uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnFlashAttentionScoreGradV2(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                   const aclrtStream stream);
int aclnnFlashAttentionUnpaddingScoreGradV2GetWorkspaceSize(
    const aclTensor* query, const aclTensor* keyIn, const aclTensor* value, const aclTensor* dy,
    const aclTensor* pseShiftOptional, const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional,
    const aclTensor* attenMaskOptional, const aclTensor* softmaxMaxOptional, const aclTensor* softmaxSumOptional,
    const aclTensor* softmaxInOptional, const aclTensor* attentionInOptional, const aclIntArray* prefixOptional,
    const aclIntArray* actualSeqQLenOptional, const aclIntArray* actualSeqKvLenOptional,
    const aclIntArray* qStartIdxOptional, const aclIntArray* kvStartIdxOptional, double scaleValue, double keepProb,
    int64_t preTokens, int64_t nextTokens, int64_t headNum, char* inputLayout, int64_t innerPrecise, int64_t sparseMode,
    int64_t pseType, const aclTensor* dqOut, const aclTensor* dkOut, const aclTensor* dvOut, const aclTensor* dpseOut,
    uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnFlashAttentionUnpaddingScoreGradV2(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                            const aclrtStream stream);
int aclnnFlashAttentionVarLenScoreGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* realShiftOptional,
    const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional,
    const aclIntArray* prefixOptional, const aclIntArray* actualSeqQLenOptional,
    const aclIntArray* actualSeqKvLenOptional, double scaleValue, double keepProb, int64_t preTokens,
    int64_t nextTokens, int64_t headNum, char* inputLayout, int64_t innerPrecise, int64_t sparseMode,
    const aclTensor* softmaxMaxOut, const aclTensor* softmaxSumOut, const aclTensor* softmaxOutOut,
    const aclTensor* attentionOutOut, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnFlashAttentionVarLenScore(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                   const aclrtStream stream);
int aclnnRingAttentionUpdateGetWorkspaceSize(const aclTensor* prevAttnOut, const aclTensor* prevSoftmaxMax,
                                             const aclTensor* prevSoftmaxSum, const aclTensor* curAttnOut,
                                             const aclTensor* curSoftmaxMax, const aclTensor* curSoftmaxSum,
                                             const aclTensor* actualSeqQlenOptional, char* inputLayoutOptional,
                                             const aclTensor* attnOutOut, const aclTensor* softmaxMaxOut,
                                             const aclTensor* softmaxSumOut, uint64_t* workspaceSize,
                                             aclOpExecutor** executor);
int aclnnRingAttentionUpdate(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnFlashAttentionUnpaddingScoreGradGetWorkspaceSize(
    const aclTensor* query, const aclTensor* keyIn, const aclTensor* value, const aclTensor* dy,
    const aclTensor* pseShiftOptional, const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional,
    const aclTensor* attenMaskOptional, const aclTensor* softmaxMaxOptional, const aclTensor* softmaxSumOptional,
    const aclTensor* softmaxInOptional, const aclTensor* attentionInOptional, const aclIntArray* prefixOptional,
    const aclIntArray* actualSeqQLenOptional, const aclIntArray* actualSeqKvLenOptional, double scaleValue,
    double keepProb, int64_t preTokens, int64_t nextTokens, int64_t headNum, char* inputLayout, int64_t innerPrecise,
    int64_t sparseMode, const aclTensor* dqOut, const aclTensor* dkOut, const aclTensor* dvOut,
    const aclTensor* dpseOut, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnFlashAttentionUnpaddingScoreGrad(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                          const aclrtStream stream);
int aclnnIncreFlashAttentionV4GetWorkspaceSize(
    const aclTensor* query, const aclTensorList* key, const aclTensorList* value, const aclTensor* pseShift,
    const aclTensor* attenMask, const aclIntArray* actualSeqLengths, const aclTensor* dequantScale1,
    const aclTensor* quantScale1, const aclTensor* dequantScale2, const aclTensor* quantScale2,
    const aclTensor* quantOffset2, const aclTensor* antiquantScale, const aclTensor* antiquantOffset,
    const aclTensor* blocktable, const aclTensor* kvPaddingSize, int64_t numHeads, double scaleValue, char* inputLayout,
    int64_t numKeyValueHeads, int64_t blockSize, int64_t innerPrecise, const aclTensor* attentionOut,
    uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnIncreFlashAttentionV4(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                               const aclrtStream stream);
int aclnnSoftmaxGetWorkspaceSize(const aclTensor* self, int64_t dim, aclTensor* out, uint64_t* workspaceSize,
                                 aclOpExecutor** executor);
int aclnnSoftmax(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnSoftmaxBackwardGetWorkspaceSize(const aclTensor* gradOutput, const aclTensor* output, int64_t dim,
                                         aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnSoftmaxBackward(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnLogSoftmaxGetWorkspaceSize(const aclTensor* self, int64_t dim, aclTensor* out, uint64_t* workspaceSize,
                                    aclOpExecutor** executor);
int aclnnLogSoftmax(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnLogSoftmaxBackwardGetWorkspaceSize(const aclTensor* gradOutput, const aclTensor* output, int64_t dim,
                                            aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnLogSoftmaxBackward(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnCrossEntropyLossGetWorkspaceSize(const aclTensor* input, const aclTensor* target,
                                          const aclTensor* weightOptional, char* reductionOptional, int64_t ignoreIndex,
                                          double labelSmoothing, double lseSquareScaleForZloss, bool returnZloss,
                                          const aclTensor* lossOut, const aclTensor* logProbOut,
                                          const aclTensor* zlossOut, const aclTensor* lseForZlossOut,
                                          uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnCrossEntropyLoss(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnCrossEntropyLossGradGetWorkspaceSize(const aclTensor* gradLoss, const aclTensor* logProb,
                                              const aclTensor* target, const aclTensor* weightOptional,
                                              const aclTensor* gradZlossOptional, const aclTensor* lseForZlossOptional,
                                              char* reductionOptional, int64_t ignoreIndex, double labelSmoothing,
                                              double lseSquareScaleForZloss, const aclTensor* out,
                                              uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnCrossEntropyLossGrad(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnNLLLossGetWorkspaceSize(const aclTensor* self, const aclTensor* target, const aclTensor* weight,
                                 int64_t reduction, int64_t ignoreIndex, aclTensor* out, aclTensor* totalWeightOut,
                                 uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnNLLLoss(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnNLLLossBackwardGetWorkspaceSize(const aclTensor* gradOutput, const aclTensor* self, const aclTensor* target,
                                         const aclTensor* weight, int64_t reduction, int64_t ignoreIndex,
                                         const aclTensor* totalWeight, aclTensor* out, uint64_t* workspaceSize,
                                         aclOpExecutor** executor);
int aclnnNLLLossBackward(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnDropoutGenMaskGetWorkspaceSize(const aclIntArray* shape, double prob, int64_t seed, int64_t offset,
                                        aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnDropoutGenMask(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnDropoutGenMaskV2GetWorkspaceSize(const aclIntArray* shape, double prob, int64_t seed, int64_t offset,
                                          aclDataType probDataType, aclTensor* out, uint64_t* workspaceSize,
                                          aclOpExecutor** executor);
int aclnnDropoutGenMaskV2(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnDropoutDoMaskGetWorkspaceSize(const aclTensor* self, const aclTensor* mask, double prob, aclTensor* out,
                                       uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnDropoutDoMask(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnApplyAdamWV2GetWorkspaceSize(aclTensor* varRef, aclTensor* mRef, aclTensor* vRef,
                                      aclTensor* maxGradNormOptionalRef, const aclTensor* grad, const aclTensor* step,
                                      float lr, float beta1, float beta2, float weightDecay, float eps, bool amsgrad,
                                      bool maximize, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnApplyAdamWV2(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnWeightQuantBatchMatmulV2GetWorkspaceSize(const aclTensor* x, const aclTensor* weight,
                                                  const aclTensor* antiquantScale,
                                                  const aclTensor* antiquantOffsetOptional,
                                                  const aclTensor* quantScaleOptional,
                                                  const aclTensor* quantOffsetOptional, const aclTensor* biasOptional,
                                                  int antiquantGroupSize, const aclTensor* y, uint64_t* workspaceSize,
                                                  aclOpExecutor** executor);
int aclnnWeightQuantBatchMatmulV2(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnWeightQuantBatchMatmulV3GetWorkspaceSize(const aclTensor* x, const aclTensor* weight,
                                                  const aclTensor* antiquantScale,
                                                  const aclTensor* antiquantOffsetOptional,
                                                  const aclTensor* quantScaleOptional,
                                                  const aclTensor* quantOffsetOptional, const aclTensor* biasOptional,
                                                  int antiquantGroupSize, int innerPrecise, const aclTensor* y,
                                                  uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnWeightQuantBatchMatmulV3(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnForeachNonFiniteCheckAndUnscaleGetWorkspaceSize(const aclTensorList* scaledGrads, const aclTensor* foundInf,
                                                         const aclTensor* invScale, uint64_t* workspaceSize,
                                                         aclOpExecutor** executor);
int aclnnForeachNonFiniteCheckAndUnscale(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                         aclrtStream stream);
int aclnnAddGetWorkspaceSize(const aclTensor* self, const aclTensor* other, const aclScalar* alpha, aclTensor* out,
                             uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnAdd(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnAddsGetWorkspaceSize(const aclTensor* self, const aclScalar* other, const aclScalar* alpha, aclTensor* out,
                              uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnAdds(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnInplaceAddGetWorkspaceSize(const aclTensor* selfRef, const aclTensor* other, const aclScalar* alpha,
                                    uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnInplaceAdd(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnInplaceAddsGetWorkspaceSize(const aclTensor* selfRef, const aclScalar* other, const aclScalar* alpha,
                                     uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnInplaceAdds(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnSubGetWorkspaceSize(const aclTensor* self, const aclTensor* other, const aclScalar* alpha, aclTensor* out,
                             uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnSub(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnSubsGetWorkspaceSize(const aclTensor* self, const aclScalar* other, const aclScalar* alpha, aclTensor* out,
                              uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnSubs(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnInplaceSubGetWorkspaceSize(aclTensor* selfRef, const aclTensor* other, const aclScalar* alpha,
                                    uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnInplaceSub(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnInplaceSubsGetWorkspaceSize(aclTensor* selfRef, const aclScalar* other, const aclScalar* alpha,
                                     uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnInplaceSubs(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnMulGetWorkspaceSize(const aclTensor* self, const aclTensor* other, aclTensor* out, uint64_t* workspaceSize,
                             aclOpExecutor** executor);
int aclnnMul(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnMulsGetWorkspaceSize(const aclTensor* self, const aclScalar* other, aclTensor* out, uint64_t* workspaceSize,
                              aclOpExecutor** executor);
int aclnnMuls(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnInplaceMulGetWorkspaceSize(aclTensor* selfRef, const aclTensor* other, uint64_t* workspaceSize,
                                    aclOpExecutor** executor);
int aclnnInplaceMul(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnInplaceMulsGetWorkspaceSize(aclTensor* selfRef, const aclScalar* other, uint64_t* workspaceSize,
                                     aclOpExecutor** executor);
int aclnnInplaceMuls(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnDivGetWorkspaceSize(const aclTensor* self, const aclTensor* other, aclTensor* out, uint64_t* workspaceSize,
                             aclOpExecutor** executor);
int aclnnDiv(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnDivsGetWorkspaceSize(const aclTensor* self, const aclScalar* other, aclTensor* out, uint64_t* workspaceSize,
                              aclOpExecutor** executor);
int aclnnDivs(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnInplaceDivGetWorkspaceSize(aclTensor* selfRef, const aclTensor* other, uint64_t* workspaceSize,
                                    aclOpExecutor** executor);
int aclnnInplaceDiv(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnInplaceDivsGetWorkspaceSize(aclTensor* selfRef, const aclScalar* other, uint64_t* workspaceSize,
                                     aclOpExecutor** executor);
int aclnnInplaceDivs(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnCastGetWorkspaceSize(const aclTensor* self, const aclDataType dtype, aclTensor* out, uint64_t* workspaceSize,
                              aclOpExecutor** executor);
int aclnnCast(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnInplaceCopyGetWorkspaceSize(aclTensor* selfRef, const aclTensor* src, uint64_t* workspaceSize,
                                     aclOpExecutor** executor);
int aclnnInplaceCopy(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, const aclrtStream stream);
int aclnnInplaceZeroGetWorkspaceSize(aclTensor* selfRef, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnInplaceZero(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnInplaceOneGetWorkspaceSize(const aclTensor* selfRef, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnInplaceOne(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnInplaceFillScalarGetWorkspaceSize(aclTensor* selfRef, const aclScalar* value, uint64_t* workspaceSize,
                                           aclOpExecutor** executor);
int aclnnInplaceFillScalar(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnInplaceFillTensorGetWorkspaceSize(aclTensor* selfRef, const aclTensor* value, uint64_t* workspaceSize,
                                           aclOpExecutor** executor);
int aclnnInplaceFillTensor(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnSqrtGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* workspaceSize,
                              aclOpExecutor** opExecutor);
int aclnnSqrt(void* workspace, uint64_t workspaceSize, aclOpExecutor* opExecutor, aclrtStream stream);
int aclnnInplaceSqrtGetWorkspaceSize(aclTensor* self, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnInplaceSqrt(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnRsqrtGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* workspaceSize,
                               aclOpExecutor** executor);
int aclnnRsqrt(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnInplaceRsqrtGetWorkspaceSize(aclTensor* selfRef, uint64_t* workspace_size, aclOpExecutor** executor);
int aclnnInplaceRsqrt(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnExpGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnExp(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnInplaceExpGetWorkspaceSize(aclTensor* selfRef, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnInplaceExp(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnLogGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnLog(void* workspace, uint64_t workspace_size, aclOpExecutor* executor, aclrtStream stream);
int aclnnInplaceLogGetWorkspaceSize(aclTensor* selfRef, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnInplaceLog(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnNegGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnNeg(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, const aclrtStream stream);
int aclnnInplaceNegGetWorkspaceSize(aclTensor* selfRef, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnInplaceNeg(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnAbsGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnAbs(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, const aclrtStream stream);
int aclnnReciprocalGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* workspaceSize,
                                    aclOpExecutor** executor);
int aclnnReciprocal(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnInplaceReciprocalGetWorkspaceSize(const aclTensor* selfRef, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnInplaceReciprocal(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnSigmoidGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* workspaceSize,
                                 aclOpExecutor** executor);
int aclnnSigmoid(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, const aclrtStream stream);
int aclnnTanhGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnTanh(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, const aclrtStream stream);
int aclnnMaximumGetWorkspaceSize(const aclTensor* self, const aclTensor* other, aclTensor* out, uint64_t* workspaceSize,
                                 aclOpExecutor** executor);
int aclnnMaximum(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnMinimumGetWorkspaceSize(const aclTensor* self, const aclTensor* other, aclTensor* out, uint64_t* workspaceSize,
                                 aclOpExecutor** executor);
int aclnnMinimum(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnAddcmulGetWorkspaceSize(const aclTensor* self, const aclTensor* tensor1, const aclTensor* tensor2,
                                 const aclScalar* value, aclTensor* out, uint64_t* workspaceSize,
                                 aclOpExecutor** executor);
int aclnnAddcmul(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnInplaceAddcmulGetWorkspaceSize(const aclTensor* selfRef, const aclTensor* tensor1, const aclTensor* tensor2,
                                        const aclScalar* value, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnInplaceAddcmul(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnAddcdivGetWorkspaceSize(const aclTensor* self, const aclTensor* tensor1, const aclTensor* tensor2,
                                 const aclScalar* value, const aclTensor* out, uint64_t* workspaceSize,
                                 aclOpExecutor** executor);
int aclnnAddcdiv(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, const aclrtStream stream);
int aclnnInplaceAddcdivGetWorkspaceSize(const aclTensor* selfRef, const aclTensor* tensor1, const aclTensor* tensor2,
                                        const aclScalar* value, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnInplaceAddcdiv(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, const aclrtStream stream);
int aclnnLerpsGetWorkspaceSize(const aclTensor* self, const aclTensor* end, const aclScalar* weight, aclTensor* out,
                               uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnLerps(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, const aclrtStream stream);
int aclnnInplaceLerpsGetWorkspaceSize(aclTensor* selfRef, const aclTensor* end, const aclScalar* weight,
                                      uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnInplaceLerps(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, const aclrtStream stream);
int aclnnPowTensorScalarGetWorkspaceSize(const aclTensor* self, const aclScalar* exponent, const aclTensor* out,
                                         uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnPowTensorScalar(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, const aclrtStream stream);
int aclnnInplacePowTensorScalarGetWorkspaceSize(const aclTensor* self, const aclScalar* exponent,
                                                uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnInplacePowTensorScalar(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnPowScalarTensorGetWorkspaceSize(const aclScalar* self, const aclTensor* exponent, const aclTensor* out,
                                         uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnPowScalarTensor(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnClampGetWorkspaceSize(const aclTensor* self, const aclScalar* clipValueMin, const aclScalar* clipValueMax,
                               aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnClamp(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, const aclrtStream stream);
int aclnnInplaceNormalGetWorkspaceSize(const aclTensor* selfRef, float mean, float std, int64_t seed, int64_t offset,
                                       uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnInplaceNormal(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnInplaceUniformGetWorkspaceSize(const aclTensor* selfRef, double from, double to, uint64_t seed,
                                        uint64_t offset, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnInplaceUniform(void* workspace, uint64_t workspace_size, aclOpExecutor* executor, const aclrtStream stream);
int aclnnEqScalarGetWorkspaceSize(const aclTensor* self, const aclScalar* other, aclTensor* out,
                                  uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnEqScalar(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, const aclrtStream stream);
int aclnnEqTensorGetWorkspaceSize(const aclTensor* self, const aclTensor* other, aclTensor* out,
                                  uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnEqTensor(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnNeScalarGetWorkspaceSize(const aclTensor* self, const aclScalar* other, aclTensor* out,
                                  uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnNeScalar(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, const aclrtStream stream);
int aclnnGtScalarGetWorkspaceSize(const aclTensor* self, const aclScalar* other, aclTensor* out,
                                  uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnGtScalar(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnLtScalarGetWorkspaceSize(const aclTensor* self, const aclScalar* other, aclTensor* out,
                                  uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnLtScalar(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnLogicalNotGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* workspaceSize,
                                    aclOpExecutor** executor);
int aclnnLogicalNot(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnInplaceLogicalNotGetWorkspaceSize(aclTensor* selfRef, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnInplaceLogicalNot(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnLogicalAndGetWorkspaceSize(const aclTensor* self, const aclTensor* other, aclTensor* out,
                                    uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnLogicalAnd(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnLogicalOrGetWorkspaceSize(const aclTensor* self, const aclTensor* other, aclTensor* out,
                                   uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnLogicalOr(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnSWhereGetWorkspaceSize(const aclTensor* condition, const aclTensor* self, const aclTensor* other,
                                aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnSWhere(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnInplaceMaskedFillScalarGetWorkspaceSize(aclTensor* selfRef, const aclTensor* mask, const aclScalar* value,
                                                 uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnInplaceMaskedFillScalar(void* workspace, uint64_t workspace_size, aclOpExecutor* executor, aclrtStream stream);
int aclnnPermuteGetWorkspaceSize(const aclTensor* self, const aclIntArray* dims, aclTensor* out,
                                 uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnPermute(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, const aclrtStream stream);
int aclnnCatGetWorkspaceSize(const aclTensorList* tensors, int64_t dim, aclTensor* out, uint64_t* workspaceSize,
                             aclOpExecutor** executor);
int aclnnCat(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, const aclrtStream stream);
int aclnnSliceGetWorkspaceSize(const aclTensor* self, int64_t dim, int64_t start, int64_t end, int64_t step,
                               aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnSlice(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnSplitWithSizeGetWorkspaceSize(const aclTensor* self, const aclIntArray* splitSize, int64_t dim,
                                       aclTensorList* out, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnSplitWithSize(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnExpandGetWorkspaceSize(const aclTensor* self, const aclIntArray* size, aclTensor* out, uint64_t* workspaceSize,
                                aclOpExecutor** executor);
int aclnnExpand(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnRepeatGetWorkspaceSize(const aclTensor* self, const aclIntArray* repeats, aclTensor* out,
                                uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnRepeat(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnTrilGetWorkspaceSize(const aclTensor* self, int64_t diagonal, aclTensor* out, uint64_t* workspaceSize,
                              aclOpExecutor** executor);
int aclnnTril(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, const aclrtStream stream);
int aclnnInplaceTrilGetWorkspaceSize(const aclTensor* selfRef, int64_t diagonal, uint64_t* workspaceSize,
                                     aclOpExecutor** executor);
int aclnnInplaceTril(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, const aclrtStream stream);
int aclnnTriuGetWorkspaceSize(const aclTensor* self, int64_t diagonal, aclTensor* out, uint64_t* workspaceSize,
                              aclOpExecutor** executor);
int aclnnTriu(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnInplaceTriuGetWorkspaceSize(aclTensor* selfRef, int64_t diagonal, uint64_t* workspaceSize,
                                     aclOpExecutor** executor);
int aclnnInplaceTriu(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnArangeGetWorkspaceSize(const aclScalar* start, const aclScalar* end, const aclScalar* step, aclTensor* out,
                                uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnArange(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, const aclrtStream stream);
int aclnnReduceSumGetWorkspaceSize(const aclTensor* self, const aclIntArray* dims, bool keepDims, aclDataType dtype,
                                   aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnReduceSum(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnMeanGetWorkspaceSize(const aclTensor* self, const aclIntArray* dim, bool keepDim, aclDataType dtype,
                              aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnMean(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnMeanV2GetWorkspaceSize(const aclTensor* self, const aclIntArray* dim, bool keepDim, bool noopWithEmptyAxes,
                                aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnMeanV2(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnNormGetWorkspaceSize(const aclTensor* self, const aclScalar* pScalar, const aclIntArray* dim, bool keepdim,
                              aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnNorm(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnLinalgVectorNormGetWorkspaceSize(const aclTensor* self, const aclScalar* ord, const aclIntArray* dims,
                                          bool keepDims, const aclDataType dtype, aclTensor* out,
                                          uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnLinalgVectorNorm(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnAmaxGetWorkspaceSize(const aclTensor* self, const aclIntArray* dim, bool keepDim, aclTensor* out,
                              uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnAmax(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnAminGetWorkspaceSize(const aclTensor* self, const aclIntArray* dim, bool keepDim, aclTensor* out,
                              uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnAmin(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnArgMaxGetWorkspaceSize(const aclTensor* self, int64_t dim, bool keepdim, aclTensor* out,
                                uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnArgMax(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnIsFiniteGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* workspaceSize,
                                  aclOpExecutor** executor);
int aclnnIsFinite(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnIsInfGetWorkspaceSize(const aclTensor* x, const aclTensor* out, uint64_t* workspaceSize,
                               aclOpExecutor** executor);
int aclnnIsInf(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnAllGetWorkspaceSize(const aclTensor* self, const aclIntArray* dim, bool keepdim, aclTensor* out,
                             uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnAll(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, const aclrtStream stream);
int aclnnAnyGetWorkspaceSize(const aclTensor* self, const aclIntArray* dim, bool keepdim, aclTensor* out,
                             uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnAny(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, const aclrtStream stream);
int aclnnEmbeddingGetWorkspaceSize(const aclTensor* weight, const aclTensor* indices, const aclTensor* out,
                                   uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnEmbedding(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, const aclrtStream stream);
int aclnnEmbeddingDenseBackwardGetWorkspaceSize(const aclTensor* grad, const aclTensor* indices, uint64_t numWeights,
                                                uint64_t paddingIdx, bool scaleGradByFreq, const aclTensor* out,
                                                uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnEmbeddingDenseBackward(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                const aclrtStream stream);
int aclnnIndexSelectGetWorkspaceSize(const aclTensor* self, int64_t dim, const aclTensor* index, aclTensor* out,
                                     uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnIndexSelect(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, const aclrtStream stream);
int aclnnIndexAddGetWorkspaceSize(const aclTensor* self, const int64_t dim, const aclTensor* index,
                                  const aclTensor* source, const aclScalar* alpha, aclTensor* out,
                                  uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnIndexAdd(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnIndexCopyGetWorkspaceSize(aclTensor* selfRef, int64_t dim, const aclTensor* index, const aclTensor* source,
                                   aclTensor* outRef, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnIndexCopy(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnInplaceIndexCopyGetWorkspaceSize(aclTensor* selfRef, int64_t dim, const aclTensor* index,
                                          const aclTensor* source, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnInplaceIndexCopy(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnGatherGetWorkspaceSize(const aclTensor* self, const int64_t dim, const aclTensor* index, aclTensor* out,
                                uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnGather(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, const aclrtStream stream);
int aclnnGatherV2GetWorkspaceSize(const aclTensor* self, int64_t dim, const aclTensor* index, aclTensor* out,
                                  uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnGatherV2(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnScatterAddGetWorkspaceSize(const aclTensor* self, int64_t dim, const aclTensor* index, const aclTensor* src,
                                    aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnScatterAdd(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, const aclrtStream stream);
int aclnnInplaceScatterGetWorkspaceSize(aclTensor* selfRef, int64_t dim, const aclTensor* index, const aclTensor* src,
                                        int64_t reduce, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnInplaceScatter(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnInplaceScatterValueGetWorkspaceSize(aclTensor* selfRef, int64_t dim, const aclTensor* index,
                                             const aclScalar* value, int64_t reduce, uint64_t* workspaceSize,
                                             aclOpExecutor** executor);
int aclnnInplaceScatterValue(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnInplaceScatterUpdateGetWorkspaceSize(aclTensor* data, const aclTensor* indices, const aclTensor* updates,
                                              int64_t axis, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnInplaceScatterUpdate(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnScatterNdUpdateGetWorkspaceSize(aclTensor* varRef, const aclTensor* indices, const aclTensor* updates,
                                         uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnScatterNdUpdate(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnForeachAddcdivScalarV2GetWorkspaceSize(const aclTensorList* x1, const aclTensorList* x2,
                                                const aclTensorList* x3, const aclScalar* scalar, aclTensorList* out,
                                                uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnForeachAddcdivScalarV2(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnForeachAddcdivListGetWorkspaceSize(const aclTensorList* x1, const aclTensorList* x2, const aclTensorList* x3,
                                            const aclTensor* scalars, const aclTensorList* out, uint64_t* workspaceSize,
                                            aclOpExecutor** executor);
int aclnnForeachAddcdivList(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnForeachAddcdivScalarListGetWorkspaceSize(const aclTensorList* x1, const aclTensorList* x2,
                                                  const aclTensorList* x3, const aclTensor* scalars,
                                                  const aclTensorList* out, uint64_t* workspaceSize,
                                                  aclOpExecutor** executor);
int aclnnForeachAddcdivScalarList(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnForeachAddcmulScalarV2GetWorkspaceSize(const aclTensorList* x1, const aclTensorList* x2,
                                                const aclTensorList* x3, const aclScalar* scalar, aclTensorList* out,
                                                uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnForeachAddcmulScalarV2(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnForeachMulScalarV2GetWorkspaceSize(const aclTensorList* x, const aclScalar* scalar, aclTensorList* out,
                                            uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnForeachMulScalarV2(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnForeachAddScalarV2GetWorkspaceSize(const aclTensorList* x, const aclScalar* scalar, aclTensorList* out,
                                            uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnForeachAddScalarV2(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnForeachAddListV2GetWorkspaceSize(const aclTensorList* x1, const aclTensorList* x2, const aclScalar* alpha,
                                          aclTensorList* out, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnForeachAddListV2(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnForeachMulListGetWorkspaceSize(const aclTensorList* x1, const aclTensorList* x2, const aclTensorList* out,
                                        uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnForeachMulList(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnForeachSqrtGetWorkspaceSize(const aclTensorList* x, const aclTensorList* out, uint64_t* workspaceSize,
                                     aclOpExecutor** executor);
int aclnnForeachSqrt(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnForeachNormGetWorkspaceSize(const aclTensorList* x, const aclScalar* scalar, const aclTensorList* out,
                                     uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnForeachNorm(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnForeachCopyGetWorkspaceSize(const aclTensorList* x, const aclTensorList* out, uint64_t* workspaceSize,
                                     aclOpExecutor** executor);
int aclnnForeachCopy(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnForeachZeroInplaceGetWorkspaceSize(const aclTensorList* x, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnForeachZeroInplace(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);

/* Collectives (libhccl.so) */
HcclResult HcclGetRootInfo(HcclRootInfo* rootInfo);
HcclResult HcclCommInitRootInfo(uint32_t nRanks, const HcclRootInfo* rootInfo, uint32_t rank, HcclComm* comm);
HcclResult HcclCommInitRootInfoConfig(uint32_t nRanks, const HcclRootInfo* rootInfo, uint32_t rank,
                                      const HcclCommConfig* config, HcclComm* comm);
HcclResult HcclCommInitAll(uint32_t ndev, int32_t* devices, HcclComm* comms);
HcclResult HcclCommDestroy(HcclComm comm);
HcclResult HcclAllReduce(void* sendBuf, void* recvBuf, uint64_t count, HcclDataType dataType, HcclReduceOp op,
                         HcclComm comm, aclrtStream stream);
HcclResult HcclBroadcast(void* buf, uint64_t count, HcclDataType dataType, uint32_t root, HcclComm comm,
                         aclrtStream stream);
HcclResult HcclReduceScatter(void* sendBuf, void* recvBuf, uint64_t recvCount, HcclDataType dataType, HcclReduceOp op,
                             HcclComm comm, aclrtStream stream);
HcclResult HcclAllGather(void* sendBuf, void* recvBuf, uint64_t sendCount, HcclDataType dataType, HcclComm comm,
                         aclrtStream stream);
HcclResult HcclReduce(void* sendBuf, void* recvBuf, uint64_t count, HcclDataType dataType, HcclReduceOp op,
                      uint32_t root, HcclComm comm, aclrtStream stream);
HcclResult HcclScatter(void* sendBuf, void* recvBuf, uint64_t recvCount, HcclDataType dataType, uint32_t root,
                       HcclComm comm, aclrtStream stream);
HcclResult HcclSend(void* sendBuf, uint64_t count, HcclDataType dataType, uint32_t destRank, HcclComm comm,
                    aclrtStream stream);
HcclResult HcclRecv(void* recvBuf, uint64_t count, HcclDataType dataType, uint32_t srcRank, HcclComm comm,
                    aclrtStream stream);
HcclResult HcclAlltoAll(const void* sendBuf, uint64_t sendCount, HcclDataType sendType, const void* recvBuf,
                        uint64_t recvCount, HcclDataType recvType, HcclComm comm, aclrtStream stream);
HcclResult HcclBatchSendRecv(HcclSendRecvItem* sendRecvInfo, uint32_t itemNum, HcclComm comm, aclrtStream stream);
HcclResult HcclCreateSubCommConfig(HcclComm* comm, uint32_t rankNum, uint32_t* rankIds, uint64_t subCommId,
                                   uint32_t subCommRankId, HcclCommConfig* config, HcclComm* subComm);
HcclResult HcclBarrier(HcclComm comm, aclrtStream stream);
HcclResult HcclGetRankSize(HcclComm comm, uint32_t* rankSize);
HcclResult HcclGetRankId(HcclComm comm, uint32_t* rank);
HcclResult HcclGetCommName(HcclComm comm, char* commName);
HcclResult HcclGetCommAsyncError(HcclComm comm, HcclResult* asyncError);
const char* HcclGetErrorString(HcclResult code);
HcclResult HcclSetConfig(HcclConfig config, HcclConfigValue configValue);
HcclResult HcclGetConfig(HcclConfig config, HcclConfigValue* configValue);

#ifdef __cplusplus
}
#endif

#endif
