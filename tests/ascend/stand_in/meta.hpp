/// The objects behind the vendor's opaque types. libnnopbase.so makes them, libopapi.so reads them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#pragma GCC visibility push(default)
#include "vendor.h"
#pragma GCC visibility pop

namespace stand_in {

using Dims = std::vector<std::int64_t>;

/// One operand as phase 1 found it. The address alone may change until phase 2.
struct Operand {
  std::string name;
  aclDataType type = ACL_FLOAT;
  Dims shape;
  Dims strides;  // in elements, as the offset is
  std::int64_t offset = 0;
  unsigned char* base = nullptr;  // on the device
  bool reads = false;
  bool writes = false;
  const aclTensor* tensor = nullptr;  // to find it again when its address is to change; not followed
  std::size_t list = 0;               // which argument it belongs to, and its place there if that is a list
  std::size_t place = 0;
};

class Launch;

/// What phase 1 found out: all that phase 2 needs.
struct Plan {
  std::string name;
  std::vector<Operand> operands;
  std::function<void(const Launch&)> kernel;
  std::uint64_t workspace = 0;
  int casts = 0;
  double flops = 0;
  double bytes = 0;
};

}  // namespace stand_in

struct aclTensor {
  stand_in::Dims shape;
  stand_in::Dims strides;
  stand_in::Dims storage;
  std::int64_t offset = 0;
  aclDataType type = ACL_DT_UNDEFINED;
  aclFormat format = ACL_FORMAT_UNDEFINED;
  unsigned char* data = nullptr;
  bool listed = false;  // a list owns it
};

struct aclScalar {
  aclDataType type = ACL_DT_UNDEFINED;
  unsigned char value[16] = {};
  bool listed = false;
};

struct aclIntArray {
  std::vector<std::int64_t> values;
};

struct aclFloatArray {
  std::vector<float> values;
};

struct aclBoolArray {
  std::vector<unsigned char> values;
};

struct aclTensorList {
  std::vector<aclTensor*> tensors;
};

struct aclScalarList {
  std::vector<aclScalar*> scalars;
};

struct aclOpExecutor {
  stand_in::Plan plan;
  bool repeatable = false;
  bool used = false;
};
