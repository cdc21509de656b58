// Integers wide enough for sums of products of ticks or bytes with whole-numbered prices.
#pragma once

namespace stead {

__extension__ typedef __int128 Wide;  // not standard C++, but of every compiler that builds the rest

}  // namespace stead
