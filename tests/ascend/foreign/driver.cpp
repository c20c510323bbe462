// The driver's library, which the vendor's runtime calls.
extern "C" int drvGetPlatformInfo(unsigned* info) { return info == nullptr ? 1 : 0; }
