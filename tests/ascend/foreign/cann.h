/* The part of the vendor's C interface that the programs here use: names, numbers and prototypes as its tables of the
   interface (CANN 8.1) state them. A program for real devices would include the vendor's headers instead. */
#ifndef FOREIGN_CANN_H
#define FOREIGN_CANN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void* aclrtStream;
typedef void* aclrtEvent;
typedef struct aclTensor aclTensor;
typedef struct aclScalar aclScalar;
typedef struct aclIntArray aclIntArray;
typedef struct aclTensorList aclTensorList;
typedef struct aclOpExecutor aclOpExecutor;
typedef void* HcclComm;
typedef struct {
  char internal[4108];
} HcclRootInfo;

typedef enum {
  ACL_FLOAT = 0,
  ACL_FLOAT16 = 1,
  ACL_INT32 = 3,
  ACL_INT64 = 9,
  ACL_STRING = 13,
  ACL_BF16 = 27
} aclDataType;
typedef enum { ACL_FORMAT_ND = 2 } aclFormat;
typedef enum { ACL_MEM_MALLOC_HUGE_FIRST = 0 } aclrtMemMallocPolicy;
typedef enum {
  ACL_MEMCPY_HOST_TO_DEVICE = 1,
  ACL_MEMCPY_DEVICE_TO_HOST = 2,
  ACL_MEMCPY_DEVICE_TO_DEVICE = 3
} aclrtMemcpyKind;
typedef enum { ACL_HBM_MEM = 1 } aclrtMemAttr;
typedef enum { HCCL_SUCCESS = 0, HCCL_E_PTR = 2 } HcclResult;
typedef enum { HCCL_DATA_TYPE_FP32 = 4 } HcclDataType;
typedef enum { HCCL_REDUCE_SUM = 0 } HcclReduceOp;

enum { ACL_SUCCESS = 0, ACLNN_ERR_PARAM_NULLPTR = 161001, ACLNN_ERR_PARAM_INVALID = 161002 };

int aclInit(const char* configPath);
int aclFinalize(void);
const char* aclGetRecentErrMsg(void);
const char* aclrtGetSocName(void);
int aclrtGetVersion(int32_t* majorVersion, int32_t* minorVersion, int32_t* patchVersion);
int aclrtGetDeviceCount(uint32_t* count);
int aclrtSetDevice(int32_t deviceId);
int aclrtResetDevice(int32_t deviceId);
int aclrtCreateStream(aclrtStream* stream);
int aclrtDestroyStream(aclrtStream stream);
int aclrtSynchronizeStream(aclrtStream stream);
int aclrtSynchronizeDevice(void);
int aclrtCreateEvent(aclrtEvent* event);
int aclrtDestroyEvent(aclrtEvent event);
int aclrtRecordEvent(aclrtEvent event, aclrtStream stream);
int aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event);
int aclrtSynchronizeEvent(aclrtEvent event);
int aclrtMalloc(void** devPtr, size_t size, aclrtMemMallocPolicy policy);
int aclrtFree(void* devPtr);
int aclrtMallocHost(void** hostPtr, size_t size);
int aclrtFreeHost(void* hostPtr);
int aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind);
int aclrtMemcpyAsync(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind,
                     aclrtStream stream);
int aclrtMemset(void* devPtr, size_t maxCount, int32_t value, size_t count);
int aclrtGetMemInfo(aclrtMemAttr attr, size_t* free, size_t* total);
size_t aclDataTypeSize(aclDataType dataType);

aclTensor* aclCreateTensor(const int64_t* viewDims, uint64_t viewDimsNum, aclDataType dataType, const int64_t* stride,
                           int64_t offset, aclFormat format, const int64_t* storageDims, uint64_t storageDimsNum,
                           void* tensorData);
int aclDestroyTensor(const aclTensor* tensor);
aclScalar* aclCreateScalar(void* value, aclDataType dataType);
int aclDestroyScalar(const aclScalar* scalar);
aclIntArray* aclCreateIntArray(const int64_t* value, uint64_t size);
int aclDestroyIntArray(const aclIntArray* array);
aclTensorList* aclCreateTensorList(const aclTensor* const* value, uint64_t size);
int aclDestroyTensorList(const aclTensorList* array);
int aclGetViewShape(const aclTensor* tensor, int64_t** viewDims, uint64_t* viewDimsNum);
int aclGetRawTensorAddr(const aclTensor* tensor, void** addr);
int aclGetDataType(const aclTensor* tensor, aclDataType* dataType);
int aclDestroyAclOpExecutor(aclOpExecutor* executor);

HcclResult HcclGetRootInfo(HcclRootInfo* rootInfo);
HcclResult HcclCommInitRootInfo(uint32_t nRanks, const HcclRootInfo* rootInfo, uint32_t rank, HcclComm* comm);
HcclResult HcclCommDestroy(HcclComm comm);
HcclResult HcclGetRankId(HcclComm comm, uint32_t* rank);
HcclResult HcclGetRankSize(HcclComm comm, uint32_t* rankSize);
HcclResult HcclAllReduce(void* sendBuf, void* recvBuf, uint64_t count, HcclDataType dataType, HcclReduceOp op,
                         HcclComm comm, aclrtStream stream);
HcclResult HcclBroadcast(void* buf, uint64_t count, HcclDataType dataType, uint32_t root, HcclComm comm,
                         aclrtStream stream);
const char* HcclGetErrorString(HcclResult code);

/* X(name, the arguments of phase 1 without the last two) for each operator. */
#define CANN_OPERATORS(X)                                                                                              \
  X(Abs, const aclTensor* self, aclTensor* out)                                                                        \
  X(Add, const aclTensor* self, const aclTensor* other, const aclScalar* alpha, aclTensor* out)                        \
  X(AddRmsNorm, const aclTensor* x1, const aclTensor* x2, const aclTensor* gamma, double epsilon,                      \
    const aclTensor* yOut, const aclTensor* rstdOut, const aclTensor* xOut)                                            \
  X(Addcdiv, const aclTensor* self, const aclTensor* tensor1, const aclTensor* tensor2, const aclScalar* value,        \
    const aclTensor* out)                                                                                              \
  X(Addcmul, const aclTensor* self, const aclTensor* tensor1, const aclTensor* tensor2, const aclScalar* value,        \
    aclTensor* out)                                                                                                    \
  X(Addmm, const aclTensor* self, const aclTensor* mat1, const aclTensor* mat2, const aclScalar* beta,                 \
    const aclScalar* alpha, aclTensor* out, int8_t cubeMathType)                                                       \
  X(Adds, const aclTensor* self, const aclScalar* other, const aclScalar* alpha, aclTensor* out)                       \
  X(All, const aclTensor* self, const aclIntArray* dim, bool keepdim, aclTensor* out)                                  \
  X(Amax, const aclTensor* self, const aclIntArray* dim, bool keepDim, aclTensor* out)                                 \
  X(Amin, const aclTensor* self, const aclIntArray* dim, bool keepDim, aclTensor* out)                                 \
  X(Any, const aclTensor* self, const aclIntArray* dim, bool keepdim, aclTensor* out)                                  \
  X(ApplyAdamWV2, aclTensor* varRef, aclTensor* mRef, aclTensor* vRef, aclTensor* maxGradNormOptionalRef,              \
    const aclTensor* grad, const aclTensor* step, float lr, float beta1, float beta2, float weightDecay, float eps,    \
    bool amsgrad, bool maximize)                                                                                       \
  X(ApplyRotaryPosEmb, aclTensor* queryRef, aclTensor* keyRef, const aclTensor* cos, const aclTensor* sin,             \
    int64_t layout)                                                                                                    \
  X(ApplyRotaryPosEmbV2, aclTensor* queryRef, aclTensor* keyRef, const aclTensor* cos, const aclTensor* sin,           \
    int64_t layout, char* rotaryMode)                                                                                  \
  X(Arange, const aclScalar* start, const aclScalar* end, const aclScalar* step, aclTensor* out)                       \
  X(ArgMax, const aclTensor* self, int64_t dim, bool keepdim, aclTensor* out)                                          \
  X(Baddbmm, const aclTensor* self, const aclTensor* batch1, const aclTensor* batch2, const aclScalar* beta,           \
    const aclScalar* alpha, aclTensor* out, int8_t cubeMathType)                                                       \
  X(BatchMatMul, const aclTensor* self, const aclTensor* mat2, aclTensor* out, int8_t cubeMathType)                    \
  X(Cast, const aclTensor* self, aclDataType dtype, aclTensor* out)                                                    \
  X(Cat, const aclTensorList* tensors, int64_t dim, aclTensor* out)                                                    \
  X(Clamp, const aclTensor* self, const aclScalar* clipValueMin, const aclScalar* clipValueMax, aclTensor* out)        \
  X(ConvertWeightToINT4Pack, const aclTensor* weight, aclTensor* weightInt4Pack)                                       \
  X(CrossEntropyLoss, const aclTensor* input, const aclTensor* target, const aclTensor* weightOptional,                \
    char* reductionOptional, int64_t ignoreIndex, double labelSmoothing, double lseSquareScaleForZloss,                \
    bool returnZloss, const aclTensor* lossOut, const aclTensor* logProbOut, const aclTensor* zlossOut,                \
    const aclTensor* lseForZlossOut)                                                                                   \
  X(CrossEntropyLossGrad, const aclTensor* gradLoss, const aclTensor* logProb, const aclTensor* target,                \
    const aclTensor* weightOptional, const aclTensor* gradZlossOptional, const aclTensor* lseForZlossOptional,         \
    char* reductionOptional, int64_t ignoreIndex, double labelSmoothing, double lseSquareScaleForZloss,                \
    const aclTensor* out)                                                                                              \
  X(Div, const aclTensor* self, const aclTensor* other, aclTensor* out)                                                \
  X(Divs, const aclTensor* self, const aclScalar* other, aclTensor* out)                                               \
  X(Dropout, const aclTensor* input, double p, bool train, int64_t seed, int64_t offset, aclTensor* out,               \
    aclTensor* maskOut)                                                                                                \
  X(DropoutBackward, const aclTensor* gradOutput, const aclTensor* mask, double scale, aclTensor* out)                 \
  X(DropoutDoMask, const aclTensor* self, const aclTensor* mask, double prob, aclTensor* out)                          \
  X(DropoutGenMask, const aclIntArray* shape, double prob, int64_t seed, int64_t offset, aclTensor* out)               \
  X(DropoutGenMaskV2, const aclIntArray* shape, double prob, int64_t seed, int64_t offset, aclDataType probDataType,   \
    aclTensor* out)                                                                                                    \
  X(Embedding, const aclTensor* weight, const aclTensor* indices, const aclTensor* out)                                \
  X(EmbeddingDenseBackward, const aclTensor* grad, const aclTensor* indices, uint64_t numWeights, uint64_t paddingIdx, \
    bool scaleGradByFreq, const aclTensor* out)                                                                        \
  X(EqScalar, const aclTensor* self, const aclScalar* other, aclTensor* out)                                           \
  X(EqTensor, const aclTensor* self, const aclTensor* other, aclTensor* out)                                           \
  X(Exp, const aclTensor* self, aclTensor* out)                                                                        \
  X(Expand, const aclTensor* self, const aclIntArray* size, aclTensor* out)                                            \
  X(FlashAttentionScore, const aclTensor* query, const aclTensor* key, const aclTensor* value,                         \
    const aclTensor* realShiftOptional, const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional,       \
    const aclTensor* attenMaskOptional, const aclIntArray* prefixOptional, double scaleValue, double keepProb,         \
    int64_t preTokens, int64_t nextTokens, int64_t headNum, char* inputLayout, int64_t innerPrecise,                   \
    int64_t sparseMode, const aclTensor* softmaxMaxOut, const aclTensor* softmaxSumOut,                                \
    const aclTensor* softmaxOutOut, const aclTensor* attentionOutOut)                                                  \
  X(FlashAttentionScoreGrad, const aclTensor* query, const aclTensor* keyIn, const aclTensor* value,                   \
    const aclTensor* dy, const aclTensor* pseShiftOptional, const aclTensor* dropMaskOptional,                         \
    const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional, const aclTensor* softmaxMaxOptional,     \
    const aclTensor* softmaxSumOptional, const aclTensor* softmaxInOptional, const aclTensor* attentionInOptional,     \
    const aclIntArray* prefixOptional, double scaleValue, double keepProb, int64_t preTokens, int64_t nextTokens,      \
    int64_t headNum, char* inputLayout, int64_t innerPrecise, int64_t sparseMode, const aclTensor* dqOut,              \
    const aclTensor* dkOut, const aclTensor* dvOut, const aclTensor* dpseOut)                                          \
  X(FlashAttentionUnpaddingScoreGrad, const aclTensor* query, const aclTensor* keyIn, const aclTensor* value,          \
    const aclTensor* dy, const aclTensor* pseShiftOptional, const aclTensor* dropMaskOptional,                         \
    const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional, const aclTensor* softmaxMaxOptional,     \
    const aclTensor* softmaxSumOptional, const aclTensor* softmaxInOptional, const aclTensor* attentionInOptional,     \
    const aclIntArray* prefixOptional, const aclIntArray* actualSeqQLenOptional,                                       \
    const aclIntArray* actualSeqKvLenOptional, double scaleValue, double keepProb, int64_t preTokens,                  \
    int64_t nextTokens, int64_t headNum, char* inputLayout, int64_t innerPrecise, int64_t sparseMode,                  \
    const aclTensor* dqOut, const aclTensor* dkOut, const aclTensor* dvOut, const aclTensor* dpseOut)                  \
  X(FlashAttentionVarLenScore, const aclTensor* query, const aclTensor* key, const aclTensor* value,                   \
    const aclTensor* realShiftOptional, const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional,       \
    const aclTensor* attenMaskOptional, const aclIntArray* prefixOptional, const aclIntArray* actualSeqQLenOptional,   \
    const aclIntArray* actualSeqKvLenOptional, double scaleValue, double keepProb, int64_t preTokens,                  \
    int64_t nextTokens, int64_t headNum, char* inputLayout, int64_t innerPrecise, int64_t sparseMode,                  \
    const aclTensor* softmaxMaxOut, const aclTensor* softmaxSumOut, const aclTensor* softmaxOutOut,                    \
    const aclTensor* attentionOutOut)                                                                                  \
  X(ForeachAddListV2, const aclTensorList* x1, const aclTensorList* x2, const aclScalar* alpha, aclTensorList* out)    \
  X(ForeachAddScalarV2, const aclTensorList* x, const aclScalar* scalar, aclTensorList* out)                           \
  X(ForeachAddcdivList, const aclTensorList* x1, const aclTensorList* x2, const aclTensorList* x3,                     \
    const aclTensor* scalars, const aclTensorList* out)                                                                \
  X(ForeachAddcdivScalarList, const aclTensorList* x1, const aclTensorList* x2, const aclTensorList* x3,               \
    const aclTensor* scalars, const aclTensorList* out)                                                                \
  X(ForeachAddcdivScalarV2, const aclTensorList* x1, const aclTensorList* x2, const aclTensorList* x3,                 \
    const aclScalar* scalar, aclTensorList* out)                                                                       \
  X(ForeachAddcmulScalarV2, const aclTensorList* x1, const aclTensorList* x2, const aclTensorList* x3,                 \
    const aclScalar* scalar, aclTensorList* out)                                                                       \
  X(ForeachCopy, const aclTensorList* x, const aclTensorList* out)                                                     \
  X(ForeachMulList, const aclTensorList* x1, const aclTensorList* x2, const aclTensorList* out)                        \
  X(ForeachMulScalarV2, const aclTensorList* x, const aclScalar* scalar, aclTensorList* out)                           \
  X(ForeachNonFiniteCheckAndUnscale, const aclTensorList* scaledGrads, const aclTensor* foundInf,                      \
    const aclTensor* invScale)                                                                                         \
  X(ForeachNorm, const aclTensorList* x, const aclScalar* scalar, const aclTensorList* out)                            \
  X(ForeachSqrt, const aclTensorList* x, const aclTensorList* out)                                                     \
  X(ForeachZeroInplace, const aclTensorList* x)                                                                        \
  X(FusedAdamw, const aclTensorList* paramsRef, const aclTensorList* grads, const aclTensorList* expAvgsRef,           \
    const aclTensorList* expAvgSqsRef, const aclTensorList* maxExpAvgSqsRef, const aclTensorList* stateSteps,          \
    const aclTensor* gradScaleOptional, const aclTensor* foundInfOptional, double lr, double beta1, double beta2,      \
    double weightDecay, double eps, bool amsgrad, bool maximize)                                                       \
  X(Gather, const aclTensor* self, int64_t dim, const aclTensor* index, aclTensor* out)                                \
  X(GatherV2, const aclTensor* self, int64_t dim, const aclTensor* index, aclTensor* out)                              \
  X(GeGluV3, const aclTensor* self, int64_t dim, int64_t approximate, bool activateLeft, aclTensor* out,               \
    aclTensor* outGelu)                                                                                                \
  X(GeGluV3Backward, const aclTensor* gradOutput, const aclTensor* self, const aclTensor* gelu, int64_t dim,           \
    int64_t approximate, bool activateLeft, aclTensor* gradInput)                                                      \
  X(Gemm, const aclTensor* A, const aclTensor* B, const aclTensor* C, float alpha, float beta, int64_t transA,         \
    int64_t transB, aclTensor* out, int8_t cubeMathType)                                                               \
  X(GtScalar, const aclTensor* self, const aclScalar* other, aclTensor* out)                                           \
  X(IncreFlashAttentionV4, const aclTensor* query, const aclTensorList* key, const aclTensorList* value,               \
    const aclTensor* pseShift, const aclTensor* attenMask, const aclIntArray* actualSeqLengths,                        \
    const aclTensor* dequantScale1, const aclTensor* quantScale1, const aclTensor* dequantScale2,                      \
    const aclTensor* quantScale2, const aclTensor* quantOffset2, const aclTensor* antiquantScale,                      \
    const aclTensor* antiquantOffset, const aclTensor* blocktable, const aclTensor* kvPaddingSize, int64_t numHeads,   \
    double scaleValue, char* inputLayout, int64_t numKeyValueHeads, int64_t blockSize, int64_t innerPrecise,           \
    const aclTensor* attentionOut)                                                                                     \
  X(IndexAdd, const aclTensor* self, int64_t dim, const aclTensor* index, const aclTensor* source,                     \
    const aclScalar* alpha, aclTensor* out)                                                                            \
  X(IndexCopy, aclTensor* selfRef, int64_t dim, const aclTensor* index, const aclTensor* source, aclTensor* outRef)    \
  X(IndexPutImpl, aclTensor* selfRef, const aclTensorList* indices, const aclTensor* values, bool accumulate,          \
    bool unsafe)                                                                                                       \
  X(IndexSelect, const aclTensor* self, int64_t dim, const aclTensor* index, aclTensor* out)                           \
  X(InplaceAdd, const aclTensor* selfRef, const aclTensor* other, const aclScalar* alpha)                              \
  X(InplaceAddcdiv, const aclTensor* selfRef, const aclTensor* tensor1, const aclTensor* tensor2,                      \
    const aclScalar* value)                                                                                            \
  X(InplaceAddcmul, const aclTensor* selfRef, const aclTensor* tensor1, const aclTensor* tensor2,                      \
    const aclScalar* value)                                                                                            \
  X(InplaceAddmm, const aclTensor* selfRef, const aclTensor* mat1, const aclTensor* mat2, const aclScalar* beta,       \
    const aclScalar* alpha, int8_t cubeMathType)                                                                       \
  X(InplaceAdds, const aclTensor* selfRef, const aclScalar* other, const aclScalar* alpha)                             \
  X(InplaceBaddbmm, const aclTensor* selfRef, const aclTensor* batch1, const aclTensor* batch2, const aclScalar* beta, \
    const aclScalar* alpha, int8_t cubeMathType)                                                                       \
  X(InplaceCopy, aclTensor* selfRef, const aclTensor* src)                                                             \
  X(InplaceDiv, aclTensor* selfRef, const aclTensor* other)                                                            \
  X(InplaceDivs, aclTensor* selfRef, const aclScalar* other)                                                           \
  X(InplaceEqScalar, const aclTensor* selfRef, const aclScalar* other)                                                 \
  X(InplaceExp, aclTensor* selfRef)                                                                                    \
  X(InplaceFillScalar, aclTensor* selfRef, const aclScalar* value)                                                     \
  X(InplaceFillTensor, aclTensor* selfRef, const aclTensor* value)                                                     \
  X(InplaceIndexCopy, aclTensor* selfRef, int64_t dim, const aclTensor* index, const aclTensor* source)                \
  X(InplaceIndexFillTensor, aclTensor* selfRef, int64_t dim, const aclIntArray* index, const aclScalar* value)         \
  X(InplaceLerps, aclTensor* selfRef, const aclTensor* end, const aclScalar* weight)                                   \
  X(InplaceLog, aclTensor* selfRef)                                                                                    \
  X(InplaceLogicalNot, aclTensor* selfRef)                                                                             \
  X(InplaceMaskedFillScalar, aclTensor* selfRef, const aclTensor* mask, const aclScalar* value)                        \
  X(InplaceMul, aclTensor* selfRef, const aclTensor* other)                                                            \
  X(InplaceMuls, aclTensor* selfRef, const aclScalar* other)                                                           \
  X(InplaceNeg, aclTensor* selfRef)                                                                                    \
  X(InplaceNormal, const aclTensor* selfRef, float mean, float std, int64_t seed, int64_t offset)                      \
  X(InplaceOne, const aclTensor* selfRef)                                                                              \
  X(InplacePowTensorScalar, const aclTensor* self, const aclScalar* exponent)                                          \
  X(InplaceReciprocal, const aclTensor* selfRef)                                                                       \
  X(InplaceRsqrt, aclTensor* selfRef)                                                                                  \
  X(InplaceScatter, aclTensor* selfRef, int64_t dim, const aclTensor* index, const aclTensor* src, int64_t reduce)     \
  X(InplaceScatterUpdate, aclTensor* data, const aclTensor* indices, const aclTensor* updates, int64_t axis)           \
  X(InplaceScatterValue, aclTensor* selfRef, int64_t dim, const aclTensor* index, const aclScalar* value,              \
    int64_t reduce)                                                                                                    \
  X(InplaceSqrt, aclTensor* self)                                                                                      \
  X(InplaceSub, aclTensor* selfRef, const aclTensor* other, const aclScalar* alpha)                                    \
  X(InplaceSubs, aclTensor* selfRef, const aclScalar* other, const aclScalar* alpha)                                   \
  X(InplaceTril, const aclTensor* selfRef, int64_t diagonal)                                                           \
  X(InplaceTriu, aclTensor* selfRef, int64_t diagonal)                                                                 \
  X(InplaceUniform, const aclTensor* selfRef, double from, double to, uint64_t seed, uint64_t offset)                  \
  X(InplaceZero, aclTensor* selfRef)                                                                                   \
  X(IsFinite, const aclTensor* self, aclTensor* out)                                                                   \
  X(IsInf, const aclTensor* x, const aclTensor* out)                                                                   \
  X(Lerps, const aclTensor* self, const aclTensor* end, const aclScalar* weight, aclTensor* out)                       \
  X(LinalgVectorNorm, const aclTensor* self, const aclScalar* ord, const aclIntArray* dims, bool keepDims,             \
    aclDataType dtype, aclTensor* out)                                                                                 \
  X(Log, const aclTensor* self, aclTensor* out)                                                                        \
  X(LogSoftmax, const aclTensor* self, int64_t dim, aclTensor* out)                                                    \
  X(LogSoftmaxBackward, const aclTensor* gradOutput, const aclTensor* output, int64_t dim, aclTensor* out)             \
  X(LogSumExp, const aclTensor* self, const aclIntArray* dim, bool keepDim, aclTensor* out)                            \
  X(LogicalAnd, const aclTensor* self, const aclTensor* other, aclTensor* out)                                         \
  X(LogicalNot, const aclTensor* self, aclTensor* out)                                                                 \
  X(LogicalOr, const aclTensor* self, const aclTensor* other, aclTensor* out)                                          \
  X(LtScalar, const aclTensor* self, const aclScalar* other, aclTensor* out)                                           \
  X(Matmul, const aclTensor* self, const aclTensor* mat2, aclTensor* out, int8_t cubeMathType)                         \
  X(MaxDim, const aclTensor* self, int64_t dim, bool keepdim, aclTensor* out, aclTensor* indices)                      \
  X(Maximum, const aclTensor* self, const aclTensor* other, aclTensor* out)                                            \
  X(Mean, const aclTensor* self, const aclIntArray* dim, bool keepDim, aclDataType dtype, aclTensor* out)              \
  X(MeanV2, const aclTensor* self, const aclIntArray* dim, bool keepDim, bool noopWithEmptyAxes, aclTensor* out)       \
  X(Minimum, const aclTensor* self, const aclTensor* other, aclTensor* out)                                            \
  X(Mm, const aclTensor* self, const aclTensor* mat2, aclTensor* out, int8_t cubeMathType)                             \
  X(Mul, const aclTensor* self, const aclTensor* other, aclTensor* out)                                                \
  X(Muls, const aclTensor* self, const aclScalar* other, aclTensor* out)                                               \
  X(NLLLoss, const aclTensor* self, const aclTensor* target, const aclTensor* weight, int64_t reduction,               \
    int64_t ignoreIndex, aclTensor* out, aclTensor* totalWeightOut)                                                    \
  X(NLLLossBackward, const aclTensor* gradOutput, const aclTensor* self, const aclTensor* target,                      \
    const aclTensor* weight, int64_t reduction, int64_t ignoreIndex, const aclTensor* totalWeight, aclTensor* out)     \
  X(NeScalar, const aclTensor* self, const aclScalar* other, aclTensor* out)                                           \
  X(Neg, const aclTensor* self, aclTensor* out)                                                                        \
  X(Norm, const aclTensor* self, const aclScalar* pScalar, const aclIntArray* dim, bool keepdim, aclTensor* out)       \
  X(Permute, const aclTensor* self, const aclIntArray* dims, aclTensor* out)                                           \
  X(PowScalarTensor, const aclScalar* self, const aclTensor* exponent, const aclTensor* out)                           \
  X(PowTensorScalar, const aclTensor* self, const aclScalar* exponent, const aclTensor* out)                           \
  X(Reciprocal, const aclTensor* self, aclTensor* out)                                                                 \
  X(ReduceSum, const aclTensor* self, const aclIntArray* dims, bool keepDims, aclDataType dtype, aclTensor* out)       \
  X(Repeat, const aclTensor* self, const aclIntArray* repeats, aclTensor* out)                                         \
  X(RingAttentionUpdate, const aclTensor* prevAttnOut, const aclTensor* prevSoftmaxMax,                                \
    const aclTensor* prevSoftmaxSum, const aclTensor* curAttnOut, const aclTensor* curSoftmaxMax,                      \
    const aclTensor* curSoftmaxSum, const aclTensor* actualSeqQlenOptional, char* inputLayoutOptional,                 \
    const aclTensor* attnOutOut, const aclTensor* softmaxMaxOut, const aclTensor* softmaxSumOut)                       \
  X(RmsNorm, const aclTensor* x, const aclTensor* gamma, double epsilon, const aclTensor* yOut,                        \
    const aclTensor* rstdOut)                                                                                          \
  X(RmsNormGrad, const aclTensor* dy, const aclTensor* x, const aclTensor* rstd, const aclTensor* gamma,               \
    const aclTensor* dxOut, const aclTensor* dgammaOut)                                                                \
  X(RotaryPositionEmbedding, const aclTensor* x, const aclTensor* cos, const aclTensor* sin, int64_t mode,             \
    aclTensor* out)                                                                                                    \
  X(RotaryPositionEmbeddingGrad, const aclTensor* dy, const aclTensor* cos, const aclTensor* sin,                      \
    const aclTensor* xOptional, int64_t mode, const aclTensor* dxOut, const aclTensor* dcosOut,                        \
    const aclTensor* dsinOut)                                                                                          \
  X(Rsqrt, const aclTensor* self, aclTensor* out)                                                                      \
  X(SWhere, const aclTensor* condition, const aclTensor* self, const aclTensor* other, aclTensor* out)                 \
  X(Scatter, const aclTensor* self, int64_t dim, const aclTensor* index, const aclTensor* src, int64_t reduce,         \
    aclTensor* out)                                                                                                    \
  X(ScatterAdd, const aclTensor* self, int64_t dim, const aclTensor* index, const aclTensor* src, aclTensor* out)      \
  X(ScatterNdUpdate, aclTensor* varRef, const aclTensor* indices, const aclTensor* updates)                            \
  X(ScatterValue, const aclTensor* self, int64_t dim, const aclTensor* index, const aclScalar* value, int64_t reduce,  \
    aclTensor* out)                                                                                                    \
  X(Sigmoid, const aclTensor* self, aclTensor* out)                                                                    \
  X(Silu, const aclTensor* self, aclTensor* out)                                                                       \
  X(SiluBackward, const aclTensor* gradOutput, const aclTensor* self, aclTensor* gradInput)                            \
  X(Slice, const aclTensor* self, int64_t dim, int64_t start, int64_t end, int64_t step, aclTensor* out)               \
  X(Softmax, const aclTensor* self, int64_t dim, aclTensor* out)                                                       \
  X(SoftmaxBackward, const aclTensor* gradOutput, const aclTensor* output, int64_t dim, aclTensor* out)                \
  X(SplitWithSize, const aclTensor* self, const aclIntArray* splitSize, int64_t dim, aclTensorList* out)               \
  X(Sqrt, const aclTensor* self, aclTensor* out)                                                                       \
  X(Sub, const aclTensor* self, const aclTensor* other, const aclScalar* alpha, aclTensor* out)                        \
  X(Subs, const aclTensor* self, const aclScalar* other, const aclScalar* alpha, aclTensor* out)                       \
  X(SwiGlu, const aclTensor* x, int64_t dim, const aclTensor* out)                                                     \
  X(SwiGluGrad, const aclTensor* yGrad, const aclTensor* x, int64_t dim, const aclTensor* out)                         \
  X(Tanh, const aclTensor* self, aclTensor* out)                                                                       \
  X(Tril, const aclTensor* self, int64_t diagonal, aclTensor* out)                                                     \
  X(Triu, const aclTensor* self, int64_t diagonal, aclTensor* out)                                                     \
  X(WeightQuantBatchMatmulV2, const aclTensor* x, const aclTensor* weight, const aclTensor* antiquantScale,            \
    const aclTensor* antiquantOffsetOptional, const aclTensor* quantScaleOptional,                                     \
    const aclTensor* quantOffsetOptional, const aclTensor* biasOptional, int antiquantGroupSize, const aclTensor* y)   \
  X(WeightQuantBatchMatmulV3, const aclTensor* x, const aclTensor* weight, const aclTensor* antiquantScale,            \
    const aclTensor* antiquantOffsetOptional, const aclTensor* quantScaleOptional,                                     \
    const aclTensor* quantOffsetOptional, const aclTensor* biasOptional, int antiquantGroupSize, int innerPrecise,     \
    const aclTensor* y)

#define CANN_DECLARE(name, ...)                                                                      \
  int aclnn##name##GetWorkspaceSize(__VA_ARGS__, uint64_t* workspaceSize, aclOpExecutor** executor); \
  int aclnn##name(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
CANN_OPERATORS(CANN_DECLARE)
#undef CANN_DECLARE

#ifdef __cplusplus
}
#endif

#endif
