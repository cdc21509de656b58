// Errors of the native core: bad input is a std::invalid_argument whose text says what is wrong and where.
#pragma once

#include <sstream>
#include <stdexcept>

namespace stead {

/// Throws std::invalid_argument with all parts written one after another.
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
    std::ostringstream text;
    (text << ... << parts);
    throw std::invalid_argument(text.str());
}

}  // namespace stead
