/// A rank of collectives that is a process of its own: rank, number of ranks, and the file through which rank 0 hands
/// on the root information. Ends with 0 if the sums are right.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "stand_in.h"
#include "vendor.h"

namespace {

constexpr std::uint64_t kCount = 100000;
constexpr std::size_t kBytes = kCount * sizeof(float);

bool hand_on(const HcclRootInfo& root, const std::string& path) {
  std::FILE* file = std::fopen((path + ".part").c_str(), "wb");
  if (file == nullptr) return false;
  const bool written = std::fwrite(&root, sizeof root, 1, file) == 1;
  return std::fclose(file) == 0 && written && std::rename((path + ".part").c_str(), path.c_str()) == 0;
}

bool take(HcclRootInfo& root, const std::string& path) {
  std::FILE* file = nullptr;
  for (int i = 0; i < 6000 && file == nullptr; ++i) {
    file = std::fopen(path.c_str(), "rb");
    if (file == nullptr) ::usleep(10000);
  }
  if (file == nullptr) return false;
  const bool read = std::fread(&root, sizeof root, 1, file) == 1;
  std::fclose(file);
  return read;
}

#define CALL(call)                                                \
  if (const int code = (call); code != 0) {                       \
    std::fprintf(stderr, "rank %u: %s: %d\n", rank, #call, code); \
    return 1;                                                     \
  }

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) return 2;
  const auto rank = static_cast<std::uint32_t>(std::atoi(arguments[1]));
  const auto ranks = static_cast<std::uint32_t>(std::atoi(arguments[2]));
  HcclRootInfo root;
  HcclComm comm = nullptr;
  aclrtStream stream = nullptr;
  void* data = nullptr;
  CALL(aclInit(nullptr));
  CALL(aclrtSetDevice(static_cast<int>(rank)));
  if (rank == 0) {
    CALL(HcclGetRootInfo(&root));
    CALL(hand_on(root, arguments[3]) ? 0 : 1);
  } else {
    CALL(take(root, arguments[3]) ? 0 : 1);
  }
  CALL(aclrtCreateStream(&stream));
  CALL(HcclCommInitRootInfo(ranks, &root, rank, &comm));
  CALL(aclrtMalloc(&data, kBytes, ACL_MEM_MALLOC_HUGE_FIRST));
  std::vector<float> values(kCount, static_cast<float>(rank + 1));
  CALL(aclrtMemcpy(data, kBytes, values.data(), kBytes, ACL_MEMCPY_HOST_TO_DEVICE));
  float expected = static_cast<float>(ranks * (ranks + 1) / 2);
  for (int i = 0; i < 3; ++i) {
    CALL(HcclAllReduce(data, data, kCount, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, stream));
    if (i > 0) expected *= static_cast<float>(ranks);
  }
  CALL(aclrtSynchronizeStream(stream));
  CALL(aclrtMemcpy(values.data(), kBytes, data, kBytes, ACL_MEMCPY_DEVICE_TO_HOST));
  CALL(aclrtFree(data));
  CALL(HcclCommDestroy(comm));
  CALL(aclrtDestroyStream(stream));
  CALL(aclrtResetDevice(static_cast<int>(rank)));
  CALL(aclFinalize());
  if (values != std::vector<float>(kCount, expected)) return 3;
  return standInTakeFaults(nullptr, 0) == 0 ? 0 : 4;
}
