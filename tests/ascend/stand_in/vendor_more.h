/* More operators of the vendor's C interface (CANN 8.1) than vendor.h has. */
#ifndef STAND_IN_VENDOR_MORE_H
#define STAND_IN_VENDOR_MORE_H

#pragma GCC visibility push(default)
#include "vendor.h"

#ifdef __cplusplus
extern "C" {
#endif

int aclnnInplaceEqScalarGetWorkspaceSize(const aclTensor* selfRef, const aclScalar* other, uint64_t* workspaceSize,
                                         aclOpExecutor** executor);
int aclnnInplaceEqScalar(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnMaxDimGetWorkspaceSize(const aclTensor* self, int64_t dim, bool keepdim, aclTensor* out, aclTensor* indices,
                                uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnMaxDim(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnLogSumExpGetWorkspaceSize(const aclTensor* self, const aclIntArray* dim, bool keepDim, aclTensor* out,
                                   uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnLogSumExp(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnScatterGetWorkspaceSize(const aclTensor* self, int64_t dim, const aclTensor* index, const aclTensor* src,
                                 int64_t reduce, aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnScatter(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnScatterValueGetWorkspaceSize(const aclTensor* self, int64_t dim, const aclTensor* index,
                                      const aclScalar* value, int64_t reduce, aclTensor* out, uint64_t* workspaceSize,
                                      aclOpExecutor** executor);
int aclnnScatterValue(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnIndexPutImplGetWorkspaceSize(aclTensor* selfRef, const aclTensorList* indices, const aclTensor* values,
                                      const bool accumulate, const bool unsafe, uint64_t* workspaceSize,
                                      aclOpExecutor** executor);
int aclnnIndexPutImpl(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnInplaceIndexFillTensorGetWorkspaceSize(aclTensor* selfRef, int64_t dim, const aclIntArray* index,
                                                const aclScalar* value, uint64_t* workspaceSize,
                                                aclOpExecutor** executor);
int aclnnInplaceIndexFillTensor(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnDropoutGetWorkspaceSize(const aclTensor* input, double p, bool train, int64_t seed, int64_t offset,
                                 aclTensor* out, aclTensor* maskOut, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnDropout(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnDropoutBackwardGetWorkspaceSize(const aclTensor* gradOutput, const aclTensor* mask, double scale,
                                         aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnDropoutBackward(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnApplyRotaryPosEmbGetWorkspaceSize(aclTensor* queryRef, aclTensor* keyRef, const aclTensor* cos,
                                           const aclTensor* sin, int64_t layout, uint64_t* workspaceSize,
                                           aclOpExecutor** executor);
int aclnnApplyRotaryPosEmb(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnConvertWeightToINT4PackGetWorkspaceSize(const aclTensor* weight, aclTensor* weightInt4Pack,
                                                 uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnConvertWeightToINT4Pack(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
/* Not among the headers of 8.1: */
int aclnnApplyRotaryPosEmbV2GetWorkspaceSize(aclTensor* queryRef, aclTensor* keyRef, const aclTensor* cos,
                                             const aclTensor* sin, int64_t layout, char* rotaryMode,
                                             uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnApplyRotaryPosEmbV2(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);
int aclnnFusedAdamwGetWorkspaceSize(const aclTensorList* paramsRef, const aclTensorList* grads,
                                    const aclTensorList* expAvgsRef, const aclTensorList* expAvgSqsRef,
                                    const aclTensorList* maxExpAvgSqsRef, const aclTensorList* stateSteps,
                                    const aclTensor* gradScaleOptional, const aclTensor* foundInfOptional, double lr,
                                    double beta1, double beta2, double weightDecay, double eps, bool amsgrad,
                                    bool maximize, uint64_t* workspaceSize, aclOpExecutor** executor);
int aclnnFusedAdamw(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
