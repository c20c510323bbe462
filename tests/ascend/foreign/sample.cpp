// A program as the vendor's documents show them, which knows nothing of the stand-in: out = 0.5 * (a @ b) on one
// device, then a sum over two devices. It includes its own copy of the interface's prototypes and links with -lascendcl
// -lnnopbase -lopapi -lhccl; with the vendor's libraries in their place it needs two devices.
#include <cmath>
#include <cstdio>
#include <thread>
#include <vector>

#include "cann.h"

#define CHECK_RET(cond, return_expr) \
  do {                               \
    if (!(cond)) {                   \
      return_expr;                   \
    }                                \
  } while (0)

#define LOG_PRINT(...) std::printf(__VA_ARGS__)

namespace {

int64_t GetShapeSize(const std::vector<int64_t>& shape) {
  int64_t size = 1;
  for (const int64_t extent : shape) size *= extent;
  return size;
}

int CreateAclTensor(const std::vector<float>& host, const std::vector<int64_t>& shape, void** device,
                    aclTensor** tensor) {
  const size_t size = static_cast<size_t>(GetShapeSize(shape)) * sizeof(float);
  int ret = aclrtMalloc(device, size, ACL_MEM_MALLOC_HUGE_FIRST);
  CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("aclrtMalloc failed. ERROR: %d\n", ret); return ret);
  ret = aclrtMemcpy(*device, size, host.data(), size, ACL_MEMCPY_HOST_TO_DEVICE);
  CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("aclrtMemcpy failed. ERROR: %d\n", ret); return ret);
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size() - 1; i > 0; i--) strides[i - 1] = shape[i] * strides[i];
  *tensor = aclCreateTensor(shape.data(), shape.size(), ACL_FLOAT, strides.data(), 0, ACL_FORMAT_ND, shape.data(),
                            shape.size(), *device);
  CHECK_RET(*tensor != nullptr, LOG_PRINT("aclCreateTensor failed.\n"); return 1);
  return 0;
}

int Multiply() {
  aclrtStream stream = nullptr;
  int ret = aclrtSetDevice(0);
  CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("aclrtSetDevice failed. ERROR: %d\n", ret); return ret);
  ret = aclrtCreateStream(&stream);
  CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("aclrtCreateStream failed. ERROR: %d\n", ret); return ret);

  const std::vector<float> a{1, 2, 3, 4, 5, 6}, b{1, 0, 0, 1, 1, 1};
  std::vector<float> out(4, 0);
  void *aAddr = nullptr, *bAddr = nullptr, *outAddr = nullptr;
  aclTensor *aTensor = nullptr, *bTensor = nullptr, *outTensor = nullptr;
  ret = CreateAclTensor(a, {2, 3}, &aAddr, &aTensor);
  CHECK_RET(ret == ACL_SUCCESS, return ret);
  ret = CreateAclTensor(b, {3, 2}, &bAddr, &bTensor);
  CHECK_RET(ret == ACL_SUCCESS, return ret);
  ret = CreateAclTensor(out, {2, 2}, &outAddr, &outTensor);
  CHECK_RET(ret == ACL_SUCCESS, return ret);
  float half = 0.5F;
  aclScalar* factor = aclCreateScalar(&half, ACL_FLOAT);
  CHECK_RET(factor != nullptr, return 1);

  // The second operator is queued behind the first on the stream; nobody waits in between.
  uint64_t workspaceSize = 0;
  aclOpExecutor* executor = nullptr;
  ret = aclnnMmGetWorkspaceSize(aTensor, bTensor, outTensor, 0, &workspaceSize, &executor);
  CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("aclnnMmGetWorkspaceSize failed. ERROR: %d\n", ret); return ret);
  void* workspace = nullptr;
  if (workspaceSize > 0) {
    ret = aclrtMalloc(&workspace, workspaceSize, ACL_MEM_MALLOC_HUGE_FIRST);
    CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("allocate workspace failed. ERROR: %d\n", ret); return ret);
  }
  ret = aclnnMm(workspace, workspaceSize, executor, stream);
  CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("aclnnMm failed. ERROR: %d\n", ret); return ret);

  uint64_t scaleSize = 0;
  ret = aclnnInplaceMulsGetWorkspaceSize(outTensor, factor, &scaleSize, &executor);
  CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("aclnnInplaceMulsGetWorkspaceSize failed. ERROR: %d\n", ret); return ret);
  void* scaleWorkspace = nullptr;
  if (scaleSize > 0) {
    ret = aclrtMalloc(&scaleWorkspace, scaleSize, ACL_MEM_MALLOC_HUGE_FIRST);
    CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("allocate workspace failed. ERROR: %d\n", ret); return ret);
  }
  ret = aclnnInplaceMuls(scaleWorkspace, scaleSize, executor, stream);
  CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("aclnnInplaceMuls failed. ERROR: %d\n", ret); return ret);

  ret = aclrtSynchronizeStream(stream);
  CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("aclrtSynchronizeStream failed. ERROR: %d\n", ret); return ret);
  const size_t bytes = out.size() * sizeof(float);
  ret = aclrtMemcpy(out.data(), bytes, outAddr, bytes, ACL_MEMCPY_DEVICE_TO_HOST);
  CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("copy result from device to host failed. ERROR: %d\n", ret); return ret);
  const std::vector<float> expected{2, 2.5F, 5, 5.5F};
  for (size_t i = 0; i < out.size(); i++) {
    LOG_PRINT("result[%zu] is: %g\n", i, static_cast<double>(out[i]));
    CHECK_RET(out[i] == expected[i], LOG_PRINT("but should be %g\n", static_cast<double>(expected[i])); return 1);
  }

  aclDestroyTensor(aTensor);
  aclDestroyTensor(bTensor);
  aclDestroyTensor(outTensor);
  aclDestroyScalar(factor);
  for (void* memory : {aAddr, bAddr, outAddr, workspace, scaleWorkspace})
    if (memory != nullptr) aclrtFree(memory);
  aclrtDestroyStream(stream);
  return aclrtResetDevice(0);
}

/// One rank of a sum of (rank + 1) times 0, 1, 2 ... over all ranks.
int Reduce(uint32_t rank, uint32_t ranks, const HcclRootInfo& rootInfo) {
  const uint64_t count = 1000;
  const size_t bytes = count * sizeof(float);
  int ret = aclrtSetDevice(static_cast<int32_t>(rank));
  CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("aclrtSetDevice failed. ERROR: %d\n", ret); return ret);
  HcclComm comm = nullptr;
  HcclResult result = HcclCommInitRootInfo(ranks, &rootInfo, rank, &comm);
  CHECK_RET(result == HCCL_SUCCESS, LOG_PRINT("HcclCommInitRootInfo: %s\n", HcclGetErrorString(result)); return 1);
  aclrtStream stream = nullptr;
  ret = aclrtCreateStream(&stream);
  CHECK_RET(ret == ACL_SUCCESS, return ret);

  std::vector<float> values(count);
  for (size_t i = 0; i < values.size(); i++) values[i] = static_cast<float>(i) * static_cast<float>(rank + 1);
  void *send = nullptr, *receive = nullptr;
  ret = aclrtMalloc(&send, bytes, ACL_MEM_MALLOC_HUGE_FIRST);
  CHECK_RET(ret == ACL_SUCCESS, return ret);
  ret = aclrtMalloc(&receive, bytes, ACL_MEM_MALLOC_HUGE_FIRST);
  CHECK_RET(ret == ACL_SUCCESS, return ret);
  ret = aclrtMemcpy(send, bytes, values.data(), bytes, ACL_MEMCPY_HOST_TO_DEVICE);
  CHECK_RET(ret == ACL_SUCCESS, return ret);
  result = HcclAllReduce(send, receive, count, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, stream);
  CHECK_RET(result == HCCL_SUCCESS, LOG_PRINT("HcclAllReduce: %s\n", HcclGetErrorString(result)); return 1);
  ret = aclrtSynchronizeStream(stream);
  CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("aclrtSynchronizeStream failed. ERROR: %d\n", ret); return ret);
  ret = aclrtMemcpy(values.data(), bytes, receive, bytes, ACL_MEMCPY_DEVICE_TO_HOST);
  CHECK_RET(ret == ACL_SUCCESS, return ret);
  const float factor = static_cast<float>(ranks * (ranks + 1) / 2);
  for (size_t i = 0; i < values.size(); i++)
    CHECK_RET(values[i] == factor * static_cast<float>(i),
              LOG_PRINT("rank %u: sum[%zu] is %g\n", rank, i, static_cast<double>(values[i]));
              return 1);
  LOG_PRINT("rank %u of %u has the sum\n", rank, ranks);

  aclrtFree(send);
  aclrtFree(receive);
  aclrtDestroyStream(stream);
  HcclCommDestroy(comm);
  return aclrtResetDevice(static_cast<int32_t>(rank));
}

int ReduceOverDevices() {
  constexpr uint32_t ranks = 2;
  int ret = aclrtSetDevice(0);
  CHECK_RET(ret == ACL_SUCCESS, return ret);
  HcclRootInfo rootInfo;
  const HcclResult result = HcclGetRootInfo(&rootInfo);
  CHECK_RET(result == HCCL_SUCCESS, LOG_PRINT("HcclGetRootInfo: %s\n", HcclGetErrorString(result)); return 1);
  std::vector<int> codes(ranks, -1);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < ranks; rank++)
    threads.emplace_back([&, rank] { codes[rank] = Reduce(rank, ranks, rootInfo); });
  for (std::thread& thread : threads) thread.join();
  for (const int code : codes) CHECK_RET(code == 0, return code);
  return aclrtResetDevice(0);
}

}  // namespace

int main() {
  int ret = aclInit(nullptr);
  CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("aclInit failed. ERROR: %d\n", ret); return 1);
  uint32_t devices = 0;
  ret = aclrtGetDeviceCount(&devices);
  CHECK_RET(ret == ACL_SUCCESS && devices > 0, LOG_PRINT("no device. ERROR: %d\n", ret); return 1);
  ret = Multiply();
  CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("the product failed. ERROR: %d\n", ret); return 1);
  ret = devices > 1 ? ReduceOverDevices() : 0;
  CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("the sum failed. ERROR: %d\n", ret); return 1);
  return aclFinalize() == ACL_SUCCESS ? 0 : 1;
}
