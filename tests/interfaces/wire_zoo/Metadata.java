// What JDBC does with a server: every call of DatabaseMetaData, parameters of each kind, prepared, cursors, errors.
// A line of JSON for each step.
import java.math.BigDecimal;
import java.sql.*;
import java.util.*;

public class Metadata {
  interface Step { void run() throws Exception; }
  static void step(String name, Step step) {
    String reason = "";
    try { step.run(); } catch (Throwable error) { reason = error.getClass().getSimpleName() + ": " + error.getMessage(); }
    reason = reason.replace("\\", "\\\\").replace("\"", "'").replace("\n", " ");
    System.out.println("{\"driver\": \"jdbc\", \"step\": \"" + name + "\", \"error\": \"" + reason + "\"}");
  }
  static List<String> column(ResultSet rows, String name) throws SQLException {
    List<String> values = new ArrayList<>();
    while (rows.next()) values.add(rows.getString(name));
    rows.close();
    return values;
  }
  static void same(Object value, Object wanted) {
    if (!wanted.equals(value)) throw new AssertionError(value + " is not " + wanted);
  }
  // Values for the parameters of a call: null for a catalog, then a schema, then a table; no number and no array.
  static Object[] defaults(Class<?>[] types) {
    String[] names = {null, "public", "product"};
    Object[] values = new Object[types.length];
    int strings = 0;
    for (int i = 0; i < types.length; i++) {
      if (types[i] == String.class) values[i] = names[strings++ % 3];
      else if (types[i] == int.class) values[i] = 1;
      else if (types[i] == boolean.class) values[i] = true;
    }
    return values;
  }
  public static void main(String[] words) throws Exception {
    String url = "jdbc:postgresql://127.0.0.1:" + words[0] + "/shop?user=jdbc";
    Connection c = DriverManager.getConnection(url);
    DatabaseMetaData m = c.getMetaData();
    step("catalogs", () -> same(column(m.getCatalogs(), "TABLE_CAT").contains("shop"), true));
    step("schemas", () -> same(column(m.getSchemas(), "TABLE_SCHEM").contains("public"), true));
    step("schemas like", () -> same(column(m.getSchemas(null, "public"), "TABLE_SCHEM"), List.of("public")));
    step("table types", () -> same(column(m.getTableTypes(), "TABLE_TYPE").contains("TABLE"), true));
    step("tables", () -> same(column(m.getTables(null, null, "%", new String[]{"TABLE"}), "TABLE_NAME").containsAll(
        List.of("customer", "product", "sales")), true));
    step("all tables", () -> m.getTables("shop", "public", "%", null));
    step("columns", () -> same(column(m.getColumns(null, "public", "product", "%"), "COLUMN_NAME"),
        List.of("product_id", "category")));
    step("primary keys", () -> same(column(m.getPrimaryKeys(null, "public", "product"), "COLUMN_NAME"), List.of("product_id")));
    step("imported keys", () -> same(new TreeSet<>(column(m.getImportedKeys(null, "public", "sales"), "PKTABLE_NAME")),
        new TreeSet<>(List.of("customer", "product"))));
    step("exported keys", () -> same(column(m.getExportedKeys(null, "public", "product"), "FKTABLE_NAME"), List.of("sales")));
    step("cross reference", () -> same(column(m.getCrossReference(null, "public", "product", null, "public", "sales"),
        "FKCOLUMN_NAME"), List.of("product_id")));
    step("indexes", () -> m.getIndexInfo(null, "public", "product", false, true));
    step("best row", () -> m.getBestRowIdentifier(null, "public", "product", DatabaseMetaData.bestRowSession, false));
    step("versions", () -> m.getVersionColumns(null, "public", "product"));
    step("types", () -> same(column(m.getTypeInfo(), "TYPE_NAME").contains("numeric"), true));
    step("user types", () -> m.getUDTs(null, "public", "%", null));
    step("functions", () -> m.getFunctions(null, "public", "%"));
    step("function columns", () -> m.getFunctionColumns(null, "public", "%", "%"));
    step("procedures", () -> m.getProcedures(null, "public", "%"));
    step("procedure columns", () -> m.getProcedureColumns(null, "public", "%", "%"));
    step("table privileges", () -> m.getTablePrivileges(null, "public", "sales"));
    step("column privileges", () -> m.getColumnPrivileges(null, "public", "sales", "%"));
    step("client properties", () -> m.getClientInfoProperties());
    step("names", () -> { m.getDatabaseProductVersion(); m.getSQLKeywords(); m.getMaxColumnNameLength(); m.getUserName(); });
    step("every call of DatabaseMetaData", () -> {
      List<String> wrong = new ArrayList<>();
      int answered = 0;
      for (java.lang.reflect.Method method : DatabaseMetaData.class.getDeclaredMethods()) {
        try {
          Object given = method.invoke(m, defaults(method.getParameterTypes()));
          if (given instanceof ResultSet) { ResultSet rows = (ResultSet) given; while (rows.next()) rows.getObject(1); rows.close(); }
          answered++;
        } catch (java.lang.reflect.InvocationTargetException thrown) {
          Throwable cause = thrown.getCause(); // what the driver itself does not have, it never asks a server
          if (!(cause instanceof SQLFeatureNotSupportedException)) wrong.add(method.getName() + ": " + cause.getMessage());
        }
      }
      if (answered < 150) wrong.add("only " + answered + " answered");
      same(wrong, List.of());
    });
    step("session", () -> {
      c.getSchema(); c.getTransactionIsolation(); c.setReadOnly(true); c.isValid(5);
      c.setClientInfo("ApplicationName", "zoo");
      c.setTransactionIsolation(Connection.TRANSACTION_REPEATABLE_READ);
    });
    step("parameters", () -> {
      PreparedStatement p = c.prepareStatement("SELECT COUNT(*) AS n FROM shop WHERE age >= ? AND region = ?");
      Set<Double> answers = new HashSet<>();
      for (int i = 0; i < 8; i++) {
        p.setInt(1, 30); p.setString(2, "east");
        ResultSet r = p.executeQuery(); r.next(); answers.add(r.getDouble("n"));
      }
      same(answers.size(), 1);
      p.getParameterMetaData().getParameterTypeName(1);
      p.getMetaData().getColumnTypeName(1);
    });
    step("dates", () -> {
      PreparedStatement p = c.prepareStatement("SELECT COUNT(*) FROM shop WHERE sold_on >= ? AND sold_on < ?");
      for (int i = 0; i < 8; i++) {
        p.setDate(1, java.sql.Date.valueOf("2025-02-01")); p.setObject(2, java.time.LocalDate.of(2025, 4, 1));
        ResultSet r = p.executeQuery(); r.next(); r.getDouble(1);
      }
    });
    step("timestamps", () -> {
      PreparedStatement p = c.prepareStatement("SELECT COUNT(*) FROM shop WHERE sold_on >= ?");
      for (int i = 0; i < 8; i++) {
        p.setTimestamp(1, Timestamp.valueOf("2025-02-01 00:00:00"));
        ResultSet r = p.executeQuery(); r.next(); r.getDouble(1);
      }
    });
    step("decimals", () -> {
      PreparedStatement p = c.prepareStatement("SELECT COUNT(*) FROM shop WHERE age >= ?");
      for (int i = 0; i < 8; i++) {
        p.setBigDecimal(1, new BigDecimal("30.5"));
        ResultSet r = p.executeQuery(); r.next(); r.getDouble(1);
      }
      p = c.prepareStatement("SELECT CAST(? AS numeric)");
      p.setBigDecimal(1, new BigDecimal("12345.6700"));
      ResultSet r = p.executeQuery(); r.next(); same(r.getBigDecimal(1), new BigDecimal("12345.6700"));
    });
    step("arrays", () -> {
      PreparedStatement p = c.prepareStatement("SELECT COUNT(*) FROM shop WHERE region = ANY(?)");
      for (int i = 0; i < 8; i++) {
        p.setArray(1, c.createArrayOf("text", new String[]{"east", "west"}));
        ResultSet r = p.executeQuery(); r.next(); r.getDouble(1);
      }
      p = c.prepareStatement("SELECT CAST(? AS int[])");
      p.setArray(1, c.createArrayOf("int4", new Integer[]{1, 2}));
      ResultSet r = p.executeQuery(); r.next(); same(Arrays.asList((Integer[]) r.getArray(1).getArray()), List.of(1, 2));
    });
    step("cursor", () -> {
      c.setAutoCommit(false);
      Statement s = c.createStatement();
      s.setFetchSize(1);
      same(column(s.executeQuery("SELECT region, COUNT(*) AS n FROM shop WHERE region IS NOT NULL GROUP BY region ORDER BY region"),
          "region"), List.of("east", "west"));
      Savepoint point = c.setSavepoint("here");
      c.rollback(point);
      c.commit();
      c.setAutoCommit(true);
    });
    step("refused", () -> {
      try { c.createStatement().executeQuery("SELECT COUNT(*) FROM nothing"); throw new AssertionError("no error"); }
      catch (SQLException error) { same(error.getSQLState(), "42P01"); }
    });
    step("timeout", () -> {
      Statement s = c.createStatement();
      s.setQueryTimeout(1);
      try { s.executeQuery(words[1]); throw new AssertionError("no error"); }
      catch (SQLException error) { same(error.getSQLState(), "57014"); }
    });
    step("copy", () -> {
      java.io.StringWriter text = new java.io.StringWriter();
      c.unwrap(org.postgresql.PGConnection.class).getCopyAPI().copyOut("COPY (SELECT 1 AS a, 'x' AS b) TO STDOUT WITH CSV", text);
      same(text.toString(), "1,x\n");
    });
    c.close();
  }
}
