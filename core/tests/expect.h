// A test framework of two functions: failures are printed and counted.
#pragma once

#include <cstdio>
#include <functional>
#include <stdexcept>

namespace stead {

inline int failures = 0;

#define CHECK(condition)                                                              \
    do {                                                                              \
        if (!(condition)) {                                                           \
            std::printf("%s:%d: %s: %s\n", __FILE__, __LINE__, __func__, #condition); \
            ++stead::failures;                                                        \
        }                                                                             \
    } while (false)

inline bool refused(const std::function<void()>& call) {
    try {
        call();
    } catch (const std::invalid_argument&) {
        return true;
    }
    return false;
}

}  // namespace stead
