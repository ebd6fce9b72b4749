#include "toy.h"

static const char *quiet(void) {
    return "hello";
}

static const char *loud(void) {
    return "HELLO";
}

const char *toy_greeting(void) {
#ifdef TOY_LOUD
    return loud();
#else
    (void)loud;
    return quiet();
#endif
}

int toy_version(void) {
    return 100;
}
