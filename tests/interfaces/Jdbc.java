// Asks a dpsql server through the PostgreSQL JDBC driver: metadata, server-prepared statements, errors, transactions.
import java.sql.*;
public class Jdbc {
  public static void main(String[] a) throws Exception {
    try (Connection c = DriverManager.getConnection(a[0], a[1], a[2])) {
      DatabaseMetaData m = c.getMetaData();
      StringBuilder t = new StringBuilder();
      ResultSet r = m.getTables(null, null, "%", new String[]{"TABLE"});
      while (r.next()) t.append(r.getString("TABLE_NAME")).append(' ');
      System.out.println("tables " + t.toString().trim());
      StringBuilder s = new StringBuilder();
      r = m.getColumns(null, null, "sales", "%");
      while (r.next()) s.append(r.getString("COLUMN_NAME")).append(':').append(r.getString("TYPE_NAME")).append(' ');
      System.out.println("columns " + s.toString().trim());
      PreparedStatement p = c.prepareStatement("SELECT COUNT(*) AS n, MIN(sold_on) AS d FROM shop WHERE age >= ? AND region = ?");
      for (int i = 0; i < 8; i++) {
        p.setInt(1, 30); p.setString(2, "east");
        r = p.executeQuery(); r.next();
        if (i == 0 || i == 7) System.out.println("answer " + r.getDouble("n") + " " + r.getDate("d"));
      }
      try { c.createStatement().executeQuery("SELECT * FROM sales"); System.out.println("no error"); }
      catch (SQLException e) { System.out.println("refused " + e.getSQLState()); }
      c.setAutoCommit(false);
      r = c.createStatement().executeQuery("SELECT 1"); r.next(); System.out.println("one " + r.getInt(1)); c.commit();
    }
  }
}
