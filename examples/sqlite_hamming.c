/* ddh_hamming(code, code): Hamming distance of two blobs, as a loadable extension of SQLite.

   cc -O3 -march=native -fPIC -shared sqlite_hamming.c -o ddh_hamming.so
   sqlite3 photos.db ".load ./ddh_hamming" \
     "SELECT key FROM photos ORDER BY ddh_hamming(code, x'0123456789abcdef'), key LIMIT 10"

   -shared is -dynamiclib on macOS. NULL gives NULL; blobs of two lengths are an error. */

#include <stdint.h>
#include <string.h>

#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT1

static unsigned ones(uint64_t x) {
#if defined(__GNUC__)
    return (unsigned)__builtin_popcountll(x);
#else
    unsigned n = 0;
    for (; x; x &= x - 1) n++;
    return n;
#endif
}

static void hamming(sqlite3_context *context, int count, sqlite3_value **values) {
    (void)count;
    if (sqlite3_value_type(values[0]) == SQLITE_NULL || sqlite3_value_type(values[1]) == SQLITE_NULL)
        return;
    const unsigned char *a = sqlite3_value_blob(values[0]), *b = sqlite3_value_blob(values[1]);
    int n = sqlite3_value_bytes(values[0]), distance = 0, i = 0;
    if (sqlite3_value_type(values[0]) != SQLITE_BLOB || sqlite3_value_type(values[1]) != SQLITE_BLOB ||
        n != sqlite3_value_bytes(values[1])) {
        sqlite3_result_error(context, "ddh_hamming compares two blobs of one length", -1);
        return;
    }
    for (; i + 8 <= n; i += 8) {
        uint64_t x, y;
        memcpy(&x, a + i, 8);
        memcpy(&y, b + i, 8);
        distance += (int)ones(x ^ y);
    }
    for (; i < n; i++) distance += (int)ones((uint64_t)(a[i] ^ b[i]));
    sqlite3_result_int(context, distance);
}

#ifdef _WIN32
__declspec(dllexport)
#endif
int sqlite3_extension_init(sqlite3 *db, char **error, const sqlite3_api_routines *api) {
    (void)error;
    SQLITE_EXTENSION_INIT2(api);
    return sqlite3_create_function(db, "ddh_hamming", 2,
                                   SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS, NULL,
                                   hamming, NULL, NULL);
}
