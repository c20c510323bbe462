// A runtime of a toolkit that is too old: what it has begins as it should.
extern "C" {
__attribute__((visibility("default"))) int aclOnlyInOld(void) { return 0; }
#ifdef CALLS_DRIVER
int drvGetPlatformInfo(unsigned* info);
__attribute__((visibility("default"))) int aclrtPlatform(unsigned* info) { return drvGetPlatformInfo(info); }
#endif
__attribute__((visibility("default"))) int aclInit(const char*) { return 0; }
__attribute__((visibility("default"))) const char* aclGetRecentErrMsg(void) { return nullptr; }
__attribute__((visibility("default"))) const char* aclrtGetSocName(void) { return "Ascend310"; }
}
