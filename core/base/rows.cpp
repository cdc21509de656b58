#include "base/rows.h"

#include <numeric>

namespace stead {

namespace {

/// Where each row begins, and room for the items.
Rows empty_rows(std::int32_t rows, std::span<const std::int32_t> row_of) {
    Rows result{std::vector<std::int32_t>(rows + 1, 0), std::vector<std::int32_t>(row_of.size())};
    for (const std::int32_t row : row_of) ++result.first[row + 1];
    std::partial_sum(result.first.begin(), result.first.end(), result.first.begin());
    return result;
}

}  // namespace

Rows rows_by_label(std::int32_t rows, std::span<const std::int32_t> row_of) {
    Rows result = empty_rows(rows, row_of);
    std::vector<std::int32_t> next(result.first.begin(), result.first.end() - 1);
    for (std::size_t i = 0; i < row_of.size(); ++i) result.items[next[row_of[i]]++] = static_cast<std::int32_t>(i);
    return result;
}

Rows transposed(std::int32_t rows, std::span<const std::int32_t> first, std::span<const std::int32_t> item) {
    Rows result = empty_rows(rows, item);
    std::vector<std::int32_t> next(result.first.begin(), result.first.end() - 1);
    for (std::size_t column = 0; column + 1 < first.size(); ++column)
        for (std::int32_t i = first[column]; i < first[column + 1]; ++i)
            result.items[next[item[i]]++] = static_cast<std::int32_t>(column);
    return result;
}

}  // namespace stead
