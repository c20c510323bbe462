// Names of operators, without one that has a fallback and one that has none.
#define OPERATOR(name)                                   \
  int aclnn##name##GetWorkspaceSize();                   \
  int aclnn##name();                                     \
  int aclnn##name##GetWorkspaceSize() { return 561103; } \
  int aclnn##name() { return 561103; }

extern "C" {
OPERATOR(Mm)
OPERATOR(BatchMatMul)
OPERATOR(InplaceAddmm)
OPERATOR(Add)
OPERATOR(InplaceAdd)
OPERATOR(Mul)
OPERATOR(Muls)
OPERATOR(InplaceMuls)
OPERATOR(Cast)
OPERATOR(InplaceCopy)
OPERATOR(InplaceZero)
OPERATOR(RmsNorm)
OPERATOR(RmsNormGrad)
OPERATOR(SwiGlu)
OPERATOR(SwiGluGrad)
OPERATOR(FlashAttentionVarLenScore)
OPERATOR(FlashAttentionUnpaddingScoreGrad)
OPERATOR(IncreFlashAttentionV4)
OPERATOR(Embedding)
OPERATOR(EmbeddingDenseBackward)
OPERATOR(LogSoftmax)
OPERATOR(CrossEntropyLoss)
OPERATOR(CrossEntropyLossGrad)
OPERATOR(DropoutDoMask)
OPERATOR(ReduceSum)
OPERATOR(IsFinite)
OPERATOR(All)
OPERATOR(ForeachNonFiniteCheckAndUnscale)
OPERATOR(WeightQuantBatchMatmulV2)
// Half of an operator is none.
int aclnnApplyAdamWV2();
int aclnnApplyAdamWV2() { return 561103; }
}
