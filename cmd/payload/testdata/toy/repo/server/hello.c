#include <stdio.h>
#include "toy.h"

int main(void) {
    printf("%s %d\n", toy_greeting(), toy_version());
    return 0;
}
