/* What tests ask of the stand-in beside the vendor's interface: counts, settings and the faults that it saw.
   libascendcl.so exports these. */
#ifndef STAND_IN_STAND_IN_H
#define STAND_IN_STAND_IN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  uint64_t launches;           /* operators and collectives that were queued */
  uint64_t casts;              /* kernels that only convert operands, which operators put around their own */
  uint64_t waits;              /* calls in which the host waited for the device */
  uint64_t device_allocations; /* aclrtMalloc and aclrtMallocPhysical */
  uint64_t host_allocations;   /* aclrtMallocHost */
  uint64_t allocated_bytes;    /* device memory that is allocated now */
  uint64_t peak_bytes;         /* the most that ever was */
  uint64_t copies_in;          /* host to device */
  uint64_t copies_out;         /* device to host */
  uint64_t copies_on_device;
  uint64_t bytes_in;
  uint64_t bytes_out;
  uint64_t bytes_on_device;
  uint64_t memsets;
  uint64_t events; /* that were recorded */
  double flops;
  double operator_bytes; /* each operand of each operator once */
} StandInCounts;

/* Since the program began. */
void standInCounts(StandInCounts* counts);

/* Calls f for each operator that was launched since the last standInResetOperators(). */
void standInOperators(void (*f)(void* user, const char* name, uint64_t launches, double flops, double bytes),
                      void* user);
void standInResetOperators(void);

/* Changes a setting; 0 if there is one of that name. settings.hpp lists them. Each may also be in the environment when
   the program starts, as STAND_IN_ and the name in capitals. */
int standInSet(const char* name, int64_t value);

/* The number of breaches of the interface since the last call; as many of their lines as fit come into text (with a
   zero behind), which may be null. */
size_t standInTakeFaults(char* text, size_t size);

#ifdef __cplusplus
}
#endif

#endif
