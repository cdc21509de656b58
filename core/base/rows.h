// Lists of numbers, one after another.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace stead {

/// A list of numbers for each row.
struct Rows {
    std::vector<std::int32_t> first;  // [row + 1]
    std::vector<std::int32_t> items;
    std::span<const std::int32_t> operator[](std::int32_t row) const {
        return {items.data() + first[row], items.data() + first[row + 1]};
    }
};

/// Rows in which item i stands in row row_of[i]; items increase.
Rows rows_by_label(std::int32_t rows, std::span<const std::int32_t> row_of);

/// The rows of a relation that is stored by column: row `item` has column c for each c that lists it.
Rows transposed(std::int32_t rows, std::span<const std::int32_t> first, std::span<const std::int32_t> item);

}  // namespace stead
