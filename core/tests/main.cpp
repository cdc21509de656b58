// Tests of the core without Python and without a framework, for the sanitizers; one file per room.
#include <cstdio>

#include "tests/expect.h"

void test_base();
void test_sim();
void test_agreement();
void test_bounds();
void test_build();
void test_decode();
void test_search();
void test_stages();
void test_walk();

int main() {
    test_base();
    test_sim();
    test_agreement();
    test_bounds();
    test_build();
    test_decode();
    test_search();
    test_stages();
    test_walk();
    std::printf(stead::failures == 0 ? "all tests passed\n" : "%d checks failed\n", stead::failures);
    return stead::failures == 0 ? 0 : 1;
}
